-- The role that only reads: for the pages and for Grafana's SQL panels. May be run again, on a new
-- database as well as on one that has the tables, by the database's owner or a superuser:
--   psql "$KVPULSE_STORE" -f docker/postgres/reader.sql
-- What it cannot do does not depend on the settings below, which a session may change: it was
-- granted nothing but SELECT, on tables there are and on those that later revisions make.
DO $$
DECLARE
    owner text := (SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = current_database());
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kvpulse_reader') THEN
        CREATE ROLE kvpulse_reader LOGIN;
    END IF;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO kvpulse_reader', current_database());
    -- Everybody may make temporary tables, as long as nobody said otherwise; the owner still may.
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA public'
        ' GRANT SELECT ON TABLES TO kvpulse_reader', owner);
END $$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO kvpulse_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO kvpulse_reader;
ALTER ROLE kvpulse_reader CONNECTION LIMIT 20;
ALTER ROLE kvpulse_reader SET default_transaction_read_only = on;
ALTER ROLE kvpulse_reader SET statement_timeout = '30s';
ALTER ROLE kvpulse_reader SET idle_in_transaction_session_timeout = '60s';
