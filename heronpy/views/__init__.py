"""The views of a topology for people and programs: one shape for each kind of object, built from messages.
Pure.

Each shape is a `msgspec.Struct`: the JSON of `/api/v1`, its schema in `/api/v1/openapi.json` and the rows of the
command come from the same field. Rules for all shapes:

- `None` (`null`) is unknown: it was not reported. 0 is a measurement.
- Times of day are seconds since 1970 (`*_at`), durations seconds (`*_s`), sizes bytes (`*_bytes`), shares are between 0
  and 1, rates are per second (`*_per_s`). A field without a unit in its name is a count or a text.
- Texts may come from users' programs: a page shows them as text, never as markup.
- Fields may be added, but are never removed.
"""
