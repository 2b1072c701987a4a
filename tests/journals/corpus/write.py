"""Writes the corpus of this version: `python write.py v1.jsonl`. A corpus is never written over.

First the attachments, then one record per line, then the hash of the last record.
"""

import base64
import json
import sys
from pathlib import Path

from windlass.journals.chain import hash_of, root
from windlass.journals.codec import encode
from windlass.testing.samples import one_of_each


def lines() -> list[str]:
    records = [encode(fact) for fact in one_of_each()]
    blobs = {name: data for record in records for name, data in record.blobs}
    head = root("corpus").hash
    for record in records:
        head = hash_of(head, record.body)
    return [
        *(
            json.dumps({"blob": name, "data": base64.b64encode(data).decode()})
            for name, data in blobs.items()
        ),
        *(record.body.decode() for record in records),
        json.dumps({"head": head.hex()}),
    ]


if __name__ == "__main__":
    with Path(sys.argv[1]).open("x", encoding="utf-8") as corpus:
        corpus.writelines(f"{line}\n" for line in lines())
