"""The tables of a Postgres journal, in their own schema.

The first process creates them, under a lock and in one transaction. Any number of processes may
start at the same time, and one that is killed in the middle leaves nothing behind.
"""

from collections.abc import Sequence

from windlass.core.errors import ConfigError
from windlass.journals.postgres.config import PostgresConfig, PostgresConnection
from windlass.journals.wording import other_format_error

MIGRATIONS: Sequence[str] = (
    # Half of each page of sessions stays free, so that an update is written to the same page. An
    # append that changes no indexed column touches no index then.
    """
    CREATE TABLE sessions (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        session text COLLATE "C" NOT NULL UNIQUE,
        head bytea NOT NULL,
        facts bigint NOT NULL,
        version bigint NOT NULL,
        state text COLLATE "C" NOT NULL,
        changed double precision NOT NULL,
        title text NOT NULL,
        created double precision NOT NULL,
        runs bigint NOT NULL,
        outcome text,
        agent text COLLATE "C" NOT NULL,
        caller text COLLATE "C" NOT NULL,
        parent text COLLATE "C" NOT NULL,
        pause text NOT NULL,
        released boolean NOT NULL,
        due double precision,
        tags text COLLATE "C" NOT NULL,
        updated double precision NOT NULL,
        steps bigint NOT NULL,
        asked bigint NOT NULL,
        tokens bigint NOT NULL,
        usd numeric,
        reserved_tokens bigint,
        reserved_usd numeric,
        mail_last bigint NOT NULL DEFAULT 0,
        mail_taken bigint NOT NULL DEFAULT 0,
        prompts_last bigint NOT NULL DEFAULT 0,
        prompts_taken bigint NOT NULL DEFAULT 0,
        worker text COLLATE "C",
        epoch bigint NOT NULL DEFAULT 0,
        waited timestamptz,
        doubt boolean NOT NULL DEFAULT false,
        raised bigint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE workers (
        id text COLLATE "C" PRIMARY KEY,
        lock bigint NOT NULL,
        host text NOT NULL,
        process bigint NOT NULL,
        version text NOT NULL,
        direct boolean NOT NULL,
        started timestamptz NOT NULL,
        renewed timestamptz NOT NULL,
        expires timestamptz NOT NULL,
        steady timestamptz NOT NULL,
        timeline text NOT NULL,
        dead boolean NOT NULL DEFAULT false,
        synchronous boolean NOT NULL DEFAULT false
    ) WITH (fillfactor = 50);
    CREATE TABLE failovers (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        timeline text COLLATE "C" NOT NULL,
        noticed timestamptz NOT NULL,
        sessions bigint NOT NULL,
        reason text NOT NULL,
        settled boolean NOT NULL DEFAULT false,
        restored bigint NOT NULL DEFAULT 0,
        paused bigint NOT NULL DEFAULT 0
    );
    INSERT INTO failovers (timeline, noticed, sessions, reason, settled)
        VALUES (left(pg_walfile_name(pg_current_wal_lsn()), 8), clock_timestamp(), 0, '', true);
    CREATE TABLE graves (
        first bytea PRIMARY KEY,
        dug timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE INDEX sessions_by_time ON sessions (changed);
    CREATE INDEX sessions_by_state ON sessions (state, changed);
    CREATE INDEX sessions_by_agent ON sessions (agent, changed) WHERE agent <> '';
    CREATE INDEX sessions_by_caller ON sessions (caller, changed) WHERE caller <> '';
    CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent <> '';
    CREATE INDEX sessions_in_doubt ON sessions (number) WHERE doubt;
    CREATE INDEX sessions_by_words
        ON sessions USING gin (to_tsvector('simple', session || ' ' || title));
    CREATE TABLE records (
        number bigint NOT NULL,
        seq bigint NOT NULL,
        body text NOT NULL,
        hash bytea NOT NULL,
        encoding text NOT NULL DEFAULT '',
        PRIMARY KEY (number, seq)
    );
    CREATE TABLE blobs (hash text COLLATE "C" PRIMARY KEY, data bytea NOT NULL);
    CREATE TABLE uses (
        hash text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        PRIMARY KEY (number, hash)
    );
    CREATE INDEX uses_by_hash ON uses (hash);
    CREATE TABLE pools (
        budget text COLLATE "C" NOT NULL,
        period text COLLATE "C" NOT NULL,
        usd numeric NOT NULL,
        tokens bigint NOT NULL,
        PRIMARY KEY (budget, period)
    ) WITH (fillfactor = 50);
    CREATE TABLE shares (
        budget text COLLATE "C" NOT NULL,
        session text COLLATE "C" NOT NULL,
        run bigint NOT NULL,
        period text COLLATE "C" NOT NULL,
        usd numeric NOT NULL,
        tokens bigint NOT NULL,
        held_usd numeric NOT NULL DEFAULT 0,
        held_tokens bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (session, run, budget)
    ) WITH (fillfactor = 50);
    CREATE INDEX shares_held ON shares (budget, period) WHERE held_usd > 0 OR held_tokens > 0;
    -- The arithmetic of budget_math.py, done in the database: no row stays locked for a round trip.
    CREATE FUNCTION share(
        a_budget text, a_period text, a_session text, a_run bigint,
        limit_usd numeric, limit_tokens bigint, said_usd numeric, said_tokens bigint,
        spent boolean, known_usd numeric, known_tokens bigint,
        OUT new_usd numeric, OUT new_tokens bigint
    ) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    DECLARE
        old shares;
        pool pools;
        is_new boolean;
    BEGIN
        INSERT INTO shares VALUES (a_budget, a_session, a_run, a_period, 0, 0, 0, 0)
            ON CONFLICT DO NOTHING;
        is_new := FOUND;
        SELECT * INTO old FROM shares
            WHERE session = a_session AND run = a_run AND budget = a_budget FOR UPDATE;
        INSERT INTO pools VALUES (a_budget, old.period, 0, 0) ON CONFLICT DO NOTHING;
        SELECT * INTO pool FROM pools
            WHERE budget = a_budget AND period = old.period FOR UPDATE;
        new_usd := old.usd;
        new_tokens := old.tokens;
        IF limit_usd IS NOT NULL AND said_usd IS NOT NULL THEN
            new_usd := CASE WHEN spent THEN greatest(said_usd, 0) ELSE greatest(old.usd,
                least(said_usd, old.usd + greatest(limit_usd - pool.usd, 0))) END;
        END IF;
        IF limit_tokens IS NOT NULL AND said_tokens IS NOT NULL THEN
            new_tokens := CASE WHEN spent THEN greatest(said_tokens, 0) ELSE greatest(old.tokens,
                least(said_tokens, old.tokens + greatest(limit_tokens - pool.tokens, 0))) END;
        END IF;
        IF is_new AND new_usd = 0 AND new_tokens = 0 THEN
            -- Who got nothing has drawn nothing, and may find more in the next period.
            DELETE FROM shares
                WHERE session = a_session AND run = a_run AND budget = a_budget;
            RETURN;
        END IF;
        UPDATE shares SET usd = new_usd, tokens = new_tokens,
            held_usd = CASE WHEN spent THEN 0 ELSE greatest(new_usd - known_usd, 0) END,
            held_tokens = CASE WHEN spent THEN 0 ELSE greatest(new_tokens - known_tokens, 0) END
            WHERE session = a_session AND run = a_run AND budget = a_budget;
        UPDATE pools
            SET usd = usd + new_usd - old.usd, tokens = tokens + new_tokens - old.tokens
            WHERE budget = a_budget AND period = old.period;
    END $$;
    CREATE TABLE mail (
        session bigint NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
        lane text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        at double precision NOT NULL,
        by text NOT NULL,
        key text COLLATE "C" NOT NULL,
        nonce text COLLATE "C" NOT NULL,
        message text,
        signature text NOT NULL DEFAULT '',
        caller text COLLATE "C" NOT NULL DEFAULT '',
        agent text COLLATE "C" NOT NULL DEFAULT '',
        priority bigint NOT NULL DEFAULT 0,
        PRIMARY KEY (session, lane, number)
    );
    CREATE UNIQUE INDEX mail_by_key ON mail (session, lane, key) WHERE key <> '';
    CREATE TABLE questions (
        session bigint NOT NULL REFERENCES sessions (number) ON DELETE CASCADE,
        call text COLLATE "C" NOT NULL,
        body text NOT NULL,
        settled boolean NOT NULL,
        PRIMARY KEY (session, call)
    ) WITH (fillfactor = 50);
    CREATE INDEX questions_left ON questions (session) WHERE NOT settled;
    -- Sessions that need a driver. The row of a session decides; see `work_rows.py`.
    CREATE TABLE work (
        number bigint PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
        session text COLLATE "C" NOT NULL,
        agent text COLLATE "C" NOT NULL,
        begun boolean NOT NULL,
        caller text COLLATE "C" NOT NULL,
        priority bigint NOT NULL,
        since double precision NOT NULL,
        due double precision,
        worker text COLLATE "C"
    ) WITH (fillfactor = 50);
    CREATE INDEX work_free ON work (agent, begun, caller, priority DESC, since)
        WHERE worker IS NULL AND due IS NULL;
    CREATE INDEX work_later ON work (due) WHERE due IS NOT NULL;
    CREATE INDEX work_taken ON work (worker) WHERE worker IS NOT NULL;
    CREATE INDEX workers_by_end ON workers (expires);
    CREATE FUNCTION keep_work(a_row sessions) RETURNS void
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    DECLARE
        has_control boolean := a_row.mail_last > a_row.mail_taken;
        has_prompts boolean := a_row.prompts_last > a_row.prompts_taken;
        is_root boolean := a_row.parent = '';
        is_open boolean := is_root AND a_row.state = 'open';
        is_busy boolean := is_root
            AND a_row.state IN ('open', 'waiting', 'awaiting_budget', 'paused');
        prompt mail;
    BEGIN
        IF NOT (is_open OR has_control OR has_prompts AND NOT is_busy
                OR is_root AND a_row.due IS NOT NULL) THEN
            DELETE FROM work WHERE number = a_row.number;
            RETURN;
        END IF;
        IF has_prompts AND NOT is_busy THEN
            SELECT * INTO prompt FROM mail WHERE mail.session = a_row.number AND lane = 'prompts'
                AND mail.number > a_row.prompts_taken ORDER BY mail.number LIMIT 1;
        END IF;
        INSERT INTO work AS old VALUES (
            a_row.number, a_row.session,
            CASE WHEN is_root THEN coalesce(nullif(prompt.agent, ''), a_row.agent) ELSE '' END,
            is_open OR NOT has_control AND a_row.due IS NOT NULL,
            coalesce(prompt.caller, a_row.caller), coalesce(prompt.priority, 0),
            coalesce(prompt.at, a_row.changed),
            CASE WHEN has_control THEN NULL ELSE a_row.due END,
            (SELECT id FROM workers WHERE id = a_row.worker AND NOT dead))
        ON CONFLICT (number) DO UPDATE SET agent = excluded.agent, begun = excluded.begun,
            caller = excluded.caller, priority = excluded.priority, since = excluded.since,
            due = excluded.due, worker = excluded.worker;
    END $$;
    CREATE FUNCTION session_changed() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        PERFORM keep_work(NEW);
        RETURN NULL;
    END $$;
    -- A row with neither facts nor mail is there for a lease alone.
    CREATE TRIGGER work_of_new AFTER INSERT ON sessions FOR EACH ROW
        WHEN (NEW.facts > 0 OR NEW.prompts_last > 0) EXECUTE FUNCTION session_changed();
    CREATE TRIGGER work_of_changed AFTER UPDATE ON sessions FOR EACH ROW WHEN (
        (NEW.facts > 0 OR NEW.prompts_last > 0) AND
        (OLD.state, OLD.due, OLD.agent, OLD.caller, OLD.parent, OLD.worker, OLD.mail_last,
            OLD.mail_taken, OLD.prompts_last, OLD.prompts_taken)
        IS DISTINCT FROM (NEW.state, NEW.due, NEW.agent, NEW.caller, NEW.parent, NEW.worker,
            NEW.mail_last, NEW.mail_taken, NEW.prompts_last, NEW.prompts_taken)
    ) EXECUTE FUNCTION session_changed();
    CREATE FUNCTION worker_gone() RETURNS trigger
    LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
    BEGIN
        UPDATE work SET worker = NULL WHERE worker = OLD.id;
        RETURN NULL;
    END $$;
    CREATE TRIGGER work_of_dead AFTER UPDATE ON workers FOR EACH ROW
        WHEN (NEW.dead AND NOT OLD.dead) EXECUTE FUNCTION worker_gone();
    CREATE TRIGGER work_of_gone AFTER DELETE ON workers FOR EACH ROW
        EXECUTE FUNCTION worker_gone();
    CREATE SEQUENCE record_versions;
    CREATE TABLE shared_records (
        kind text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        version bigint NOT NULL DEFAULT nextval('record_versions'),
        data bytea NOT NULL,
        nonce text COLLATE "C" NOT NULL,
        signature text NOT NULL DEFAULT '',
        PRIMARY KEY (kind, name)
    ) WITH (fillfactor = 50);
    CREATE TABLE meta (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
    INSERT INTO meta VALUES ('journal', replace(gen_random_uuid()::text, '-', ''));
    """,
)
"""Each one brings a schema to the next version; a new schema begins with the first.

A step leaves the tables usable for programs of the version before (`journals/upgrades.py`).
"""
_GET_VERSION = "SELECT version FROM {}.windlass"
_GET_STEPS = "SELECT value FROM {}.meta WHERE name = 'schema'"
"""The steps that were taken. The version stays behind while older programs share the tables."""
_SET_VERSION = "UPDATE {}.windlass SET version = $1"
_TABLES = "SELECT FROM pg_tables WHERE schemaname = $1"


async def migrate_schema(connection: PostgresConnection, config: PostgresConfig) -> None:
    """Create the tables, or bring those of an older version up to date.

    Raises ConfigError if the schema cannot be used, and JournalFailed if it is of another format.
    """
    if await _read_schema_version(connection, config) >= len(MIGRATIONS):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", config.lock_key())
        # Asked again under the lock: another process may have been faster.
        version = await _read_schema_version(connection, config)
        if not version:
            await _create_schema(connection, config)
        await connection.execute(f"SET LOCAL search_path TO {config.quoted_schema}")
        for migration in MIGRATIONS[version:]:
            await connection.execute(migration)
        # Programs of the version before can use the tables; a new journal has none to share with.
        told = "UPDATE {}.windlass SET version = greatest(version, $1)"
        await connection.execute(told.format(config.quoted_schema), len(MIGRATIONS) - bool(version))
        note = """INSERT INTO meta VALUES ('schema', $1)
            ON CONFLICT (name) DO UPDATE SET value = excluded.value"""
        await connection.execute(note, str(len(MIGRATIONS)))


async def is_shared(connection: PostgresConnection, config: PostgresConfig) -> bool:
    """Whether programs of an older version may use the schema: its upgrade is not finished."""
    version = await connection.fetchval(_GET_VERSION.format(config.quoted_schema))
    return version < len(MIGRATIONS)


async def end_sharing(connection: PostgresConnection, config: PostgresConfig) -> None:
    """Finish the upgrade of the schema: programs of older versions refuse it from now on."""
    await connection.execute(_SET_VERSION.format(config.quoted_schema), len(MIGRATIONS))


async def _create_schema(connection: PostgresConnection, config: PostgresConfig) -> None:
    if await connection.fetchval("SHOW server_encoding") != "UTF8":
        raise ConfigError(
            f"{config.location}: the database is not encoded in UTF8; create one that is"
        )
    await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {config.quoted_schema}")
    if await connection.fetchval(f"SELECT EXISTS ({_TABLES})", config.schema):
        raise ConfigError(
            f"{config.location}: schema {config.schema!r} belongs to another program; "
            "use another schema"
        )
    table = f"{config.quoted_schema}.windlass"
    await connection.execute(
        f"""CREATE TABLE {table} AS SELECT 0 AS version;
        COMMENT ON TABLE {table} IS 'the version of the tables beside this one'"""
    )


async def _read_schema_version(connection: PostgresConnection, config: PostgresConfig) -> int:
    """Return the version of the tables; 0 if there are none."""
    # Asked of pg_tables and not by name: a connection may have cached that a name does not exist.
    is_ours = f"SELECT EXISTS ({_TABLES} AND tablename = 'windlass')"
    if not await connection.fetchval(is_ours, config.schema):
        return 0
    version: int = await connection.fetchval(_GET_VERSION.format(config.quoted_schema))
    if version > len(MIGRATIONS):
        raise other_format_error(config.location, version, len(MIGRATIONS))
    if not await connection.fetchval(
        f"SELECT EXISTS ({_TABLES} AND tablename = 'meta')", config.schema
    ):
        return version
    taken = await connection.fetchval(_GET_STEPS.format(config.quoted_schema))
    return max(version, int(taken or 0))
