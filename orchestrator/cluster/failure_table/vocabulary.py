"""Words that say the same in many messages, and what they are in English where a log is in Chinese."""

from __future__ import annotations

NO = (
    "not support|unsupported|only support|n't support|supported for now|not yet|not implemented|"
    "not available|not valid|requires|invalid|incompatible|only available|only work"
)
GONE = (
    "not found|no such|missing|not exist|n't exist|cannot find|can't find|could not find|"
    "n't find|corrupt|failed to load|cannot load|can't load|n't load|no file|not a valid|"
    "cannot reach|offline|unable to locate|empty|truncated|unreadable|no tokenizer|no config|no adapter|"
    "could not parse|failed to parse|cannot parse|unable to parse|could not detect|"
    "invalid repo|invalid path|invalid model|invalid tokenizer|invalid director|invalid json"
)
WRONG = (
    "must|divisible|greater|less than|smaller|larger|exceed|cannot be|should be|invalid|"
    "not allow|incompatible|not compatible|out of range|only be|only for|simultaneous|at the same time|mismatch"
)
LATE = "timed out|timeout|time out|timeouterror"

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
