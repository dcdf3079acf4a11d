"""Words that say the same in many messages."""

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
