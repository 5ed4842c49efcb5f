/*
 * One recorder's present segment, as C sees it: reading plain values, and writing one record.
 *
 * The buffers of the segment are held through the buffer protocol from one assignment of `_c_hot`
 * to the next; whoever unmaps a segment first takes it away from here. The calling thread holds
 * the GIL; a clock written in Python may let go of it, so what it may have changed is looked at
 * again afterwards.
 */
#ifndef KVPULSE_HOT_PATH_H
#define KVPULSE_HOT_PATH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the journal is little-endian; this machine keeps the Python writer"
#endif

#define MAX_KINDS 64
#define RECORD_BYTES 32

typedef struct {
    uint64_t ts_ns;
    uint32_t seq;
    uint8_t kind;
    uint8_t flags;
    uint16_t tenant;
    uint32_t owner;
    uint32_t first;
    uint32_t n;
    uint32_t aux;
} Record;

_Static_assert(sizeof(Record) == RECORD_BYTES, "a record has no padding");

typedef struct {
    PyObject_HEAD
    PyObject *hot;   /* the tuple as it was assigned; keeps `clock` alive */
    PyObject *clock; /* borrowed from it */
    int reads_system_clock;
    int is_aimed; /* the four buffers are held */
    Py_buffer records, emitted, commit, lane;
    uint64_t record_capacity, lane_capacity;
    int64_t base;
    uint64_t aims; /* how often `_c_hot` was assigned */
    uint64_t index, word, soft_limit, soft_word, piece;
} HotPath;

/* ---- plain values: nothing here runs Python code ---- */

/* Read an int (or a subclass of it) up to `most`; 0 where it is anything else. */
static inline int
read_u64(PyObject *value, uint64_t most, uint64_t *out)
{
    if (value == NULL || !PyLong_Check(value)) {
        return 0;
    }
#if PY_VERSION_HEX >= 0x030C0000
    if (PyUnstable_Long_IsCompact((PyLongObject *)value)) {
        Py_ssize_t small = PyUnstable_Long_CompactValue((PyLongObject *)value);
        *out = (uint64_t)small;
        return small >= 0 && *out <= most;
    }
#else
    Py_ssize_t size = Py_SIZE(value);
    if (size == 0 || size == 1) {
        *out = size == 0 ? 0 : ((PyLongObject *)value)->ob_digit[0];
        return *out <= most;
    }
    if (size < 0) {
        return 0;
    }
#endif
    unsigned long long large = PyLong_AsUnsignedLongLong(value);
    if (large == (unsigned long long)-1 && PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    *out = large;
    return large <= most;
}

static inline int
read_u32(PyObject *value, uint32_t *out)
{
    uint64_t wide;
    if (!read_u64(value, UINT32_MAX, &wide)) {
        return 0;
    }
    *out = (uint32_t)wide;
    return 1;
}

/* Like `read_u32`, with what a missing argument stands for. */
static inline int
read_u32_or(PyObject *value, uint32_t otherwise, uint32_t *out)
{
    *out = otherwise;
    return value == NULL || read_u32(value, out);
}

static inline int
read_u8(PyObject *value, uint32_t *out)
{
    return read_u32(value, out) && *out <= UINT8_MAX;
}

static inline int
read_tenant(PyObject *value, Record *record)
{
    uint32_t tenant;
    if (!read_u32_or(value, 0, &tenant) || tenant > UINT16_MAX) {
        return 0;
    }
    record->tenant = (uint16_t)tenant;
    return 1;
}

/* Read True or False themselves; anything else has a truth that only Python can ask for. */
static inline int
read_flag(PyObject *value, int *out)
{
    *out = value == Py_True;
    return value == NULL || value == Py_True || value == Py_False;
}

typedef struct {
    PyObject **items;
    uint64_t length;
} Items;

/* Look into a list or a tuple; anything else may run code when it is looked into. */
static inline int
read_items(PyObject *value, Items *out)
{
    if (value == NULL || !(PyList_CheckExact(value) || PyTuple_CheckExact(value))) {
        return 0;
    }
    out->items = PySequence_Fast_ITEMS(value);
    out->length = (uint64_t)PySequence_Fast_GET_SIZE(value);
    return 1;
}

static inline int
read_words(Items ids, uint32_t *words)
{
    for (uint64_t i = 0; i < ids.length; i++) {
        if (!read_u32(ids.items[i], &words[i])) {
            return 0;
        }
    }
    return 1;
}

static inline void
put_u64(uint32_t *words, uint64_t value)
{
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
}

/* ---- the segment ---- */

/* Say whether a record with `words` lane words fits and its number needs no new base. */
static inline int
has_room(const HotPath *self, uint64_t words)
{
    if (!self->is_aimed || self->index >= self->record_capacity) {
        return 0;
    }
    if (self->word > self->lane_capacity || words > self->lane_capacity - self->word) {
        return 0;
    }
    int64_t seq = self->base + (int64_t)self->index;
    return seq >= 0 && seq <= (int64_t)UINT32_MAX;
}

/*
 * Write a record behind its lane words and commit it: the one place where C moves the commit word.
 * Kept out of line, so that a disassembly shows it.
 */
__attribute__((noinline)) static void
write_record(HotPath *self, const Record *record, uint64_t words, uint64_t events)
{
    memcpy((char *)self->records.buf + self->index * RECORD_BYTES, record, RECORD_BYTES);
    ((uint64_t *)self->emitted.buf)[record->kind] += events;
    self->word += words;
    self->index += 1;
    _Atomic uint64_t *commit = self->commit.buf;
    atomic_store_explicit(commit, self->index, memory_order_release);
}

/* Ask the clock; 0 with an exception set where it has no usable answer. */
static inline int
read_clock(HotPath *self, uint64_t *out)
{
#if defined(__linux__)
    struct timespec now;
    if (self->reads_system_clock && clock_gettime(CLOCK_MONOTONIC, &now) == 0) {
        *out = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        return 1;
    }
#endif
    PyObject *clock = Py_NewRef(self->clock);
    PyObject *answer = PyObject_CallNoArgs(clock);
    Py_DECREF(clock);
    PyObject *number = answer == NULL ? NULL : PyNumber_Index(answer);
    Py_XDECREF(answer);
    if (number == NULL) {
        return 0;
    }
    unsigned long long value = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    *out = value;
    return !(value == (unsigned long long)-1 && PyErr_Occurred());
}

/* The slow ways of `RecordWriter`: make room and try once more. */
static PyObject *
emit_slowly(HotPath *self, const Record *record)
{
    return PyObject_CallMethod((PyObject *)self, "_emit_slowly", "iiiIIII", (int)record->kind,
                               (int)record->flags, (int)record->tenant, record->owner,
                               record->first, record->n, record->aux);
}

static PyObject *
emit_lane_slowly(HotPath *self, const Record *record, const uint32_t *words, uint64_t num_words)
{
    PyObject *lane = NULL, *result = NULL;
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)num_words * 4);
    PyObject *view = bytes == NULL ? NULL : PyMemoryView_FromObject(bytes);
    if (view != NULL) {
        lane = PyObject_CallMethod(view, "cast", "s", "I");
    }
    if (lane != NULL) {
        result = PyObject_CallMethod((PyObject *)self, "_emit_lane_slowly", "iiiIOII",
                                     (int)record->kind, (int)record->flags, (int)record->tenant,
                                     record->owner, lane, record->n, record->aux);
    }
    Py_XDECREF(lane);
    Py_XDECREF(view);
    Py_XDECREF(bytes);
    return result;
}

/*
 * Stamp and commit a record for which there is room. Without words, `first` stands in the record
 * itself; with them, it becomes their place in the lane.
 */
static inline PyObject *
emit(HotPath *self, Record *record, const uint32_t *words, uint64_t num_words, uint64_t events)
{
    uint64_t at = self->index, word = self->word, aims = self->aims;
    if (num_words > 0) {
        record->first = (uint32_t)word;
        memcpy((char *)self->lane.buf + word * 4, words, num_words * 4);
    }
    int is_stamped = read_clock(self, &record->ts_ns);
    if (!is_stamped && !PyErr_ExceptionMatches(PyExc_Exception)) {
        return NULL; /* Ctrl-C inside the clock */
    }
    /* A clock written in Python may have let another thread take the segment away. */
    if (is_stamped && aims == self->aims && at == self->index && word == self->word) {
        record->seq = (uint32_t)(self->base + (int64_t)at);
        write_record(self, record, num_words, events);
        Py_RETURN_NONE;
    }
    PyErr_Clear();
    return num_words > 0 ? emit_lane_slowly(self, record, words, num_words)
                         : emit_slowly(self, record);
}

#endif
