/* What the scheduler states, see kvpulse/request_events.py, and the engine's `step` and `pool`. */
#ifndef KVPULSE_REQUEST_METHODS_H
#define KVPULSE_REQUEST_METHODS_H

#include "_method_call.h"

WRITES(wait_for)
{
    uint32_t flags;
    if (!read_u32(given[0], &record->owner) || !read_u32(given[1], &record->aux)
        || !read_u8(given[2], &flags) || !read_u32_or(given[3], 0, &record->first)
        || !read_tenant(given[4], record)) {
        return 0;
    }
    /* Whether a subclass of int is true is its own business. */
    if (given[3] != NULL && !PyLong_CheckExact(given[3])) {
        return 0;
    }
    record->flags = (uint8_t)flags;
    record->n = record->first != 0;
    return write_plain(self, record, result);
}
DECLARE(wait_for, WAIT, 3, "wait", "owner", "cause", "flags", "blocker", "tenant")

WRITES(admit)
{
    return read_u32(given[0], &record->owner) && read_tenant(given[1], record)
           && write_plain(self, record, result);
}
DECLARE(admit, ADMIT, 1, "admit", "owner", "tenant")

WRITES(reject)
{
    uint32_t words[2];
    return read_u32(given[0], &record->owner) && read_u32(given[1], &record->aux)
           && read_u32_or(given[2], 0, &words[0]) && read_u32_or(given[3], 0, &words[1])
           && read_tenant(given[4], record) && write_words(self, record, words, 2, result);
}
DECLARE(reject, REJECT, 2, "reject", "owner", "reason", "needed", "limit", "tenant")

WRITES(prefix_hit)
{
    int resumed;
    if (!read_u32(given[0], &record->owner) || !read_u32(given[1], &record->aux)
        || !read_u32(given[2], &record->first) || !read_flag(given[3], &resumed)
        || !read_tenant(given[4], record)) {
        return 0;
    }
    record->flags = (uint8_t)resumed;
    record->n = 1;
    return write_plain(self, record, result);
}
DECLARE(prefix_hit, PREFIX_HIT, 3, "prefix_hit", "owner", "tokens", "queried", "resumed", "tenant")

WRITES(preempt)
{
    uint32_t words[3], mode;
    if (!read_u32(given[0], &record->owner) || !read_u32(given[1], &record->aux)
        || !read_u8(given[2], &mode) || !read_u32(given[3], &words[0])
        || !read_u32(given[4], &words[1]) || !read_u32(given[5], &words[2])
        || !read_tenant(given[6], record)) {
        return 0;
    }
    record->flags = (uint8_t)mode;
    return write_words(self, record, words, 3, result);
}
DECLARE(preempt, PREEMPT, 6, "preempt", "owner", "beneficiary", "mode", "tokens_lost",
        "blocks_freed", "blocks_kept", "tenant")

/* `resume` and `fork`: owner, one number, tenant. */
static inline int
write_number(HotPath *self, PyObject **given, Record *record, PyObject **result)
{
    return read_u32(given[0], &record->owner) && read_u32(given[1], &record->aux)
           && read_tenant(given[2], record) && write_plain(self, record, result);
}
#define resume_written write_number
DECLARE(resume, RESUME, 2, "resume", "owner", "tokens_found", "tenant")
#define fork_from_written write_number
DECLARE(fork_from, FORK, 2, "fork", "owner", "parent", "tenant")

WRITES(first_token)
{
    int resumed;
    if (!read_u32(given[0], &record->owner) || !read_flag(given[1], &resumed)
        || !read_tenant(given[2], record)) {
        return 0;
    }
    record->flags = (uint8_t)resumed;
    return write_plain(self, record, result);
}
DECLARE(first_token, FIRST_TOKEN, 1, "first_token", "owner", "resumed", "tenant")

WRITES(finish)
{
    uint32_t words[4];
    for (int i = 0; i < 4; i++) {
        if (!read_u32(given[2 + i], &words[i])) {
            return 0;
        }
    }
    return read_u32(given[0], &record->owner) && read_u32(given[1], &record->aux)
           && read_tenant(given[6], record) && write_words(self, record, words, 4, result);
}
DECLARE(finish, FINISH, 6, "finish", "owner", "reason", "prompt_tokens", "output_tokens",
        "computed_tokens", "recomputed_tokens", "tenant")

WRITES(step)
{
    uint32_t words[STEP_WORDS];
    uint64_t number, duration_ns;
    if (!PyLong_CheckExact(given[0]) || !read_u64(given[0], UINT64_MAX, &number)) {
        return 0;
    }
    words[0] = (uint32_t)(number >> 32);
    record->aux = (uint32_t)number;
    for (int i = 1; i < 6; i++) {
        if (!read_u32(given[i], &words[i])) {
            return 0;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (!read_u64(given[6 + i], UINT64_MAX, &duration_ns)) {
            return 0;
        }
        put_u64(words + 6 + 2 * i, duration_ns);
    }
    return write_words(self, record, words, STEP_WORDS, result) && at_safe_point(self, result);
}
DECLARE(step, STEP, 9, "step", "number", "prefill_tokens", "decode_tokens", "sequences",
        "context_tokens", "waiting", "schedule_ns", "compute_ns", "sample_ns")

WRITES(pool)
{
    uint32_t words[POOL_WORDS];
    uint64_t sum;
    int host;
    for (int i = 0; i < 4; i++) {
        if (!read_u32(given[i], &words[i])) {
            return 0;
        }
    }
    for (int i = 0; i < 2; i++) {
        PyObject *measured = given[6 + i] == Py_None ? NULL : given[6 + i];
        if (!read_u64(given[4 + i], UINT64_MAX, &sum)
            || !read_u32_or(measured, NOT_MEASURED, &words[8 + i])) {
            return 0;
        }
        put_u64(words + 4 + 2 * i, sum);
    }
    if (!read_flag(given[8], &host)) {
        return 0;
    }
    record->flags = host ? HOST_TIER : 0;
    if (given[9] != NULL && given[9] != Py_None) {
        uint32_t allocate_ns;
        if (!read_u32(given[9], &allocate_ns) || allocate_ns == UINT32_MAX) {
            return 0;
        }
        record->aux = allocate_ns + 1;
    }
    return write_words(self, record, words, POOL_WORDS, result) && at_safe_point(self, result);
}
DECLARE(pool, POOL, 6, "pool", "total", "active", "cached", "free", "sum_of_counts", "checksum",
        "filled_slots", "largest_free_run", "host", "allocate_ns")

#endif
