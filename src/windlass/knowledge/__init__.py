"""What an agent knows beyond its session: a store of notes, instruction files, skills."""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.knowledge.embeddings import Embedder as Embedder, HttpEmbedder as HttpEmbedder
    from windlass.knowledge.ingestion import (
        IngestProgress as IngestProgress,
        IngestReport as IngestReport,
        IngestSettings as IngestSettings,
        ingest as ingest,
    )
    from windlass.knowledge.instructions import (
        ProjectInstructions as ProjectInstructions,
        read_instructions as read_instructions,
    )
    from windlass.knowledge.memory import Memory as Memory
    from windlass.knowledge.postgres import PostgresKnowledge as PostgresKnowledge
    from windlass.knowledge.skills import Skill as Skill, Skills as Skills
    from windlass.knowledge.sqlite import SqliteKnowledge as SqliteKnowledge
    from windlass.knowledge.store import (
        FoundNote as FoundNote,
        Knowledge as Knowledge,
        KnowledgeFailed as KnowledgeFailed,
        Note as Note,
        Scope as Scope,
        Source as Source,
    )

LAZY_MODULES: LazyModules = {
    "windlass.knowledge.embeddings": "Embedder HttpEmbedder",
    "windlass.knowledge.ingestion": "IngestProgress IngestReport IngestSettings ingest",
    "windlass.knowledge.instructions": "ProjectInstructions read_instructions",
    "windlass.knowledge.memory": "Memory",
    "windlass.knowledge.postgres": "PostgresKnowledge",
    "windlass.knowledge.skills": "Skill Skills",
    "windlass.knowledge.sqlite": "SqliteKnowledge",
    "windlass.knowledge.store": "FoundNote Knowledge KnowledgeFailed Note Scope Source",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
