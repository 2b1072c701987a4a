"""What an agent knows beyond its session: a store of notes, instruction files, skills."""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.knowledge.embeddings import Embedder, HttpEmbedder
    from windlass.knowledge.ingestion import IngestProgress, IngestReport, IngestSettings, ingest
    from windlass.knowledge.instructions import ProjectInstructions, read_instructions
    from windlass.knowledge.memory import Memory
    from windlass.knowledge.postgres import PostgresKnowledge
    from windlass.knowledge.skills import Skill, Skills
    from windlass.knowledge.sqlite import SqliteKnowledge
    from windlass.knowledge.store import FoundNote, Knowledge, KnowledgeFailed, Note, Scope, Source

__all__ = [
    "Embedder",
    "FoundNote",
    "HttpEmbedder",
    "IngestProgress",
    "IngestReport",
    "IngestSettings",
    "Knowledge",
    "KnowledgeFailed",
    "Memory",
    "Note",
    "PostgresKnowledge",
    "ProjectInstructions",
    "Scope",
    "Skill",
    "Skills",
    "Source",
    "SqliteKnowledge",
    "ingest",
    "read_instructions",
]

LAZY_MODULES: LazyModules = {
    "Embedder": "windlass.knowledge.embeddings",
    "FoundNote": "windlass.knowledge.store",
    "HttpEmbedder": "windlass.knowledge.embeddings",
    "IngestProgress": "windlass.knowledge.ingestion",
    "IngestReport": "windlass.knowledge.ingestion",
    "IngestSettings": "windlass.knowledge.ingestion",
    "Knowledge": "windlass.knowledge.store",
    "KnowledgeFailed": "windlass.knowledge.store",
    "Memory": "windlass.knowledge.memory",
    "Note": "windlass.knowledge.store",
    "PostgresKnowledge": "windlass.knowledge.postgres",
    "ProjectInstructions": "windlass.knowledge.instructions",
    "Scope": "windlass.knowledge.store",
    "Skill": "windlass.knowledge.skills",
    "Skills": "windlass.knowledge.skills",
    "Source": "windlass.knowledge.store",
    "SqliteKnowledge": "windlass.knowledge.sqlite",
    "ingest": "windlass.knowledge.ingestion",
    "read_instructions": "windlass.knowledge.instructions",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
