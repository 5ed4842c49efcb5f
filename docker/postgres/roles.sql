-- Run once by Postgres's image, when its data folder is new: the agent's own role owns the database
-- and is no superuser.
CREATE ROLE kvpulse LOGIN;
ALTER DATABASE kvpulse OWNER TO kvpulse;
