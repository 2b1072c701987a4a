"""Writes the corpus of this version: `python write.py v1.jsonl`. A corpus is never written over.

Version 1 is open until the release: until then, delete its file and write it again.

First the attachments, then one record per line, then the hash of the last record.
"""

import base64
import json
import sys
from pathlib import Path

from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.testing.samples import facts_of_every_kind


def lines() -> list[str]:
    records = [encode_fact(fact) for fact in facts_of_every_kind()]
    blobs = {name: data for record in records for name, data in record.blobs}
    head = chain_root("corpus").hash
    for record in records:
        head = chain_hash(head, record.body)
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
