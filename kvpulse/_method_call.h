/*
 * What every public method has in common. Each asks one question first: is every argument plain, and has the segment
 * room? If so it writes the record; in every other case it hands the untouched arguments to the
 * Python method of the same name. Nothing is written before that choice, so refusals, rotation,
 * pauses and odd arguments are decided in Python alone.
 */
#ifndef KVPULSE_METHOD_CALL_H
#define KVPULSE_METHOD_CALL_H

#include "_hot_path.h"

#define HOST_TIER 0x80u
#define NOT_MEASURED 0xFFFFFFFFu
#define MOST_WORDS 4096 /* of one record written here; a longer one goes through Python */
#define MOST_PARAMETERS 10
#define STEP_WORDS 12
#define POOL_WORDS 10

/* Codes of kvpulse/events.py. */
enum {
    ALLOCATE = 1,
    SHARE,
    FREE,
    COPY_ON_WRITE,
    CACHE,
    EVICT,
    SWAP_OUT,
    SWAP_IN,
    ALLOCATE_FAILED,
    HOLD,
    WAIT = 17,
    ADMIT,
    REJECT,
    PREFIX_HIT,
    PREEMPT,
    RESUME,
    FORK,
    FIRST_TOKEN,
    FINISH,
    STEP = 32,
    POOL
};

/* One method: its kind, its parameters, the Python method that it stands in for. */
typedef struct {
    int kind;
    int required; /* so many of the parameters have no default */
    const char *reference;
    const char *parameters[MOST_PARAMETERS + 1];
    /* filled in once, when the module is made */
    int num_parameters;
    PyObject *interned[MOST_PARAMETERS];
    PyObject *interned_reference;
} Method;

#define DECLARE(function, code, num_required, name, ...)                     \
    static Method function##_method = {.kind = (code),                       \
                                       .required = (num_required),           \
                                       .reference = "_python_" name,         \
                                       .parameters = {__VA_ARGS__}};         \
    static PyObject *function(PyObject *object, PyObject *const *args,       \
                              Py_ssize_t nargs, PyObject *kwnames)           \
    {                                                                        \
        PyObject *given[MOST_PARAMETERS];                                    \
        Record record = {.kind = (code)};                                    \
        PyObject *result = NULL;                                             \
        if (!gather(&function##_method, args, nargs, kwnames, given)         \
            || !function##_written((HotPath *)object, given, &record, &result)) { \
            return ask_python(object, &function##_method, args, nargs, kwnames);  \
        }                                                                    \
        return result;                                                       \
    }

/* What each method does: 1 when the call is done and `*result` says how, 0 to leave it to Python. */
#define WRITES(function)                                                            \
    static inline int function##_written(HotPath *self, PyObject **given, Record *record, \
                                         PyObject **result)

/* Put the arguments where their parameters stand; 0 where Python must judge the call. */
static inline int
gather(const Method *method, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
       PyObject **given)
{
    int total = method->num_parameters;
    if (nargs > total) {
        return 0;
    }
    for (int i = 0; i < total; i++) {
        given[i] = i < nargs ? args[i] : NULL;
    }
    Py_ssize_t num_named = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < num_named; k++) {
        int i = 0;
        while (i < total && method->interned[i] != PyTuple_GET_ITEM(kwnames, k)) {
            i++;
        }
        if (i == total || given[i] != NULL) {
            return 0;
        }
        given[i] = args[nargs + k];
    }
    for (int i = 0; i < method->required; i++) {
        if (given[i] == NULL) {
            return 0;
        }
    }
    return 1;
}

/* Hand the call to the Python method, with the arguments as they came. */
static PyObject *
ask_python(PyObject *self, const Method *method, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    PyObject *few[16];
    PyObject **all = few;
    Py_ssize_t num_args = nargs + (kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames));
    if (num_args > 15) {
        all = PyMem_New(PyObject *, num_args + 1);
        if (all == NULL) {
            return PyErr_NoMemory();
        }
    }
    all[0] = self;
    for (Py_ssize_t i = 0; i < num_args; i++) {
        all[i + 1] = args[i];
    }
    PyObject *result =
        PyObject_VectorcallMethod(method->interned_reference, all, (size_t)nargs + 1, kwnames);
    if (all != few) {
        PyMem_Free(all);
    }
    return result;
}

/* ---- what the methods have in common ---- */

static inline int
write_plain(HotPath *self, Record *record, PyObject **result)
{
    if (!has_room(self, 0)) {
        return 0;
    }
    *result = emit(self, record, NULL, 0, 1);
    return 1;
}

/* Payload words of a record that counts one event. */
static inline int
write_words(HotPath *self, Record *record, const uint32_t *words, uint32_t n, PyObject **result)
{
    if (!has_room(self, n)) {
        return 0;
    }
    record->n = n;
    *result = emit(self, record, words, n, 1);
    return 1;
}

/* Block ids; a single one stands in the record itself. */
static inline int
write_ids(HotPath *self, Record *record, PyObject *ids_given, PyObject **result)
{
    Items ids;
    uint32_t words[MOST_WORDS];
    if (!read_items(ids_given, &ids) || ids.length == 0) {
        return 0;
    }
    record->n = (uint32_t)ids.length;
    if (ids.length == 1) {
        return read_u32(ids.items[0], &record->first) && write_plain(self, record, result);
    }
    if (ids.length > MOST_WORDS || ids.length > self->piece || !has_room(self, ids.length)
        || !read_words(ids, words)) {
        return 0;
    }
    *result = emit(self, record, words, ids.length, ids.length);
    return 1;
}

/* Pairs of blocks: owner, pairs, tenant. */
static inline int
write_pairs(HotPath *self, PyObject **given, Record *record, PyObject **result)
{
    Items pairs;
    uint32_t words[MOST_WORDS];
    if (!read_u32(given[0], &record->owner) || !read_items(given[1], &pairs)
        || !read_tenant(given[2], record)) {
        return 0;
    }
    if (pairs.length == 0 || pairs.length % 2 != 0 || pairs.length > MOST_WORDS
        || pairs.length > self->piece || !has_room(self, pairs.length)
        || !read_words(pairs, words)) {
        return 0;
    }
    record->n = (uint32_t)(pairs.length / 2);
    *result = emit(self, record, words, pairs.length, pairs.length / 2);
    return 1;
}

/* After `step` and `pool` the engine's state is whole, so segments may change here. */
static inline int
at_safe_point(HotPath *self, PyObject **result)
{
    if (*result != NULL && (self->index >= self->soft_limit || self->word >= self->soft_word)) {
        Py_DECREF(*result);
        *result = PyObject_CallMethod((PyObject *)self, "_safe_point", NULL);
    }
    return 1;
}

#endif
