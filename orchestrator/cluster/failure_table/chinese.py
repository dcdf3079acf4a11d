"""What the words of logs and reports in Chinese are in English, where all rules are."""

from __future__ import annotations

CHINESE = {
    "显存不足": "gpu out of memory",
    "显存溢出": "gpu out of memory",
    "爆显存": "gpu out of memory",
    "显存": "gpu memory",
    "内存不足": "host out of memory",
    "内存溢出": "host out of memory",
    "共享内存": "shared memory",
    "磁盘": "disk",
    "空间不足": "no space left",
    "超过": "exceeds",
    "超出": "exceeds",
    "上下文": "context length prompt maximum context",
    "不支持": "not support",
    "不兼容": "incompatible",
    "不匹配": "mismatch",
    "版本": "version",
    "驱动": "driver",
    "找不到": "not found",
    "不存在": "not exist",
    "模型": "model",
    "权重": "weight",
    "分词器": "tokenizer",
    "参数": "argument",
    "端口": "port",
    "被占用": "in use",
    "冲突": "conflict",
    "权限": "permission",
    "超时": "timed out",
    "卡住": "hang",
    "卡死": "hang",
    "通信": "collective comm",
    "节点": "node",
    "编译": "compil",
    "量化": "quantiz",
    "非法内存": "illegal memory access",
    "段错误": "segmentation fault",
    "异常": "exception",
    "报错": "error",
    "错误": "error",
    "失败": "fail",
    "崩溃": "crash",
}
"""Words of Chinese logs and reports, and what stands for them among the English ones."""


def in_english(text: str) -> str:
    """A text with what its Chinese words mean behind it."""
    return text if text.isascii() else " ".join([text, *(word for said, word in CHINESE.items() if said in text)])
