/*
 * The recorder's hot path in C: the same bytes as the Python writer, which stays the reference.
 *
 * `HotPath` is the first base of every recorder where this module was built; it holds the fields
 * that both sides need. `kvpulse/compiled_recorder.py` puts fields and methods to use.
 */
#include "_block_methods.h"
#include "_request_methods.h"

#if defined(__linux__)
#include <sys/mman.h>
#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE, which the headers of older systems lack */
#endif

static Method *const all_methods[] = {
    &allocate_method, &share_method,           &free_ids_method, &copy_on_write_method,
    &cache_method,    &evict_method,           &swap_out_method, &swap_in_method,
    &hold_method,     &allocate_failed_method, &wait_for_method, &admit_method,
    &reject_method,   &prefix_hit_method,      &preempt_method,  &resume_method,
    &fork_from_method, &first_token_method,    &finish_method,   &step_method,
    &pool_method,
};

static PyObject *monotonic_ns; /* time.monotonic_ns, which is read without a call */

static void
let_go(HotPath *self)
{
    self->aims++;
    self->clock = NULL;
    if (self->is_aimed) {
        self->is_aimed = 0;
        PyBuffer_Release(&self->records);
        PyBuffer_Release(&self->emitted);
        PyBuffer_Release(&self->commit);
        PyBuffer_Release(&self->lane);
    }
}

/* Hold a writable buffer of at least `least` bytes in items of `item` bytes, aligned to them. */
static int
hold_buffer(PyObject *object, Py_buffer *buffer, Py_ssize_t item, Py_ssize_t least)
{
    if (PyObject_GetBuffer(object, buffer, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    if (buffer->itemsize == item && buffer->len >= least
        && (uintptr_t)buffer->buf % (uintptr_t)item == 0) {
        return 1;
    }
    PyBuffer_Release(buffer);
    return 0;
}

/* Hold all four buffers or none. */
static int
hold_buffers(HotPath *self, PyObject *hot)
{
    if (!hold_buffer(PyTuple_GET_ITEM(hot, 0), &self->records, 1, 0)) {
        return 0;
    }
    if (hold_buffer(PyTuple_GET_ITEM(hot, 3), &self->emitted, 8, 8 * MAX_KINDS)) {
        if (hold_buffer(PyTuple_GET_ITEM(hot, 4), &self->commit, 8, 8)) {
            if (hold_buffer(PyTuple_GET_ITEM(hot, 5), &self->lane, 4, 0)) {
                return 1;
            }
            PyBuffer_Release(&self->commit);
        }
        PyBuffer_Release(&self->emitted);
    }
    PyBuffer_Release(&self->records);
    return 0;
}

/* Take (records, clock, base, emitted, commit, lane); where anything is odd, stay idle. */
static void
aim(HotPath *self, PyObject *hot)
{
    if (!PyTuple_CheckExact(hot) || PyTuple_GET_SIZE(hot) != 6
        || !PyLong_CheckExact(PyTuple_GET_ITEM(hot, 2))) {
        return;
    }
    int overflow;
    long long base = PyLong_AsLongLongAndOverflow(PyTuple_GET_ITEM(hot, 2), &overflow);
    if (overflow || base > UINT32_MAX || base < -(1LL << 40) || !hold_buffers(self, hot)) {
        return;
    }
    self->base = base;
    self->clock = PyTuple_GET_ITEM(hot, 1);
    self->reads_system_clock = self->clock == monotonic_ns;
    self->record_capacity = (uint64_t)self->records.len / RECORD_BYTES;
    self->lane_capacity = (uint64_t)self->lane.len / 4;
    self->is_aimed = 1;
}

static PyObject *
get_hot(PyObject *object, void *Py_UNUSED(closure))
{
    HotPath *self = (HotPath *)object;
    if (self->hot == NULL) {
        PyErr_SetString(PyExc_AttributeError, "_hot");
        return NULL;
    }
    return Py_NewRef(self->hot);
}

static int
set_hot(PyObject *object, PyObject *value, void *Py_UNUSED(closure))
{
    HotPath *self = (HotPath *)object;
    PyObject *before = self->hot;
    let_go(self);
    self->hot = Py_XNewRef(value);
    if (value != NULL) {
        aim(self, value);
    }
    Py_XDECREF(before);
    return 0;
}

static PyObject *
get_number(PyObject *self, void *offset)
{
    return PyLong_FromUnsignedLongLong(*(uint64_t *)((char *)self + (uintptr_t)offset));
}

static int
set_number(PyObject *self, PyObject *value, void *offset)
{
    uint64_t number;
    if (!read_u64(value, INT64_MAX, &number)) {
        PyErr_SetString(PyExc_ValueError, "an int from 0 to 2**63 - 1 is needed");
        return -1;
    }
    *(uint64_t *)((char *)self + (uintptr_t)offset) = number;
    return 0;
}

static int
traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((HotPath *)self)->hot);
    return 0;
}

static int
clear(PyObject *self)
{
    return set_hot(self, NULL, NULL);
}

static void
deallocate(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}

#define NUMBER(field)                             \
    {.name = "_c_" #field,                        \
     .get = get_number,                           \
     .set = set_number,                           \
     .closure = (void *)offsetof(HotPath, field)}

static PyGetSetDef attributes[] = {
    {.name = "_c_hot", .get = get_hot, .set = set_hot},
    NUMBER(index),
    NUMBER(word),
    NUMBER(soft_limit),
    NUMBER(soft_word),
    NUMBER(piece),
    {.name = NULL},
};

#define METHOD(name, function, parameters)              \
    {.ml_name = "_c_" name,                             \
     .ml_meth = (PyCFunction)(void (*)(void))function,  \
     .ml_flags = METH_FASTCALL | METH_KEYWORDS,         \
     .ml_doc = "_c_" name "($self, " parameters ")\n--\n\nSee `Recorder." name "`."}

static PyMethodDef methods[] = {
    METHOD("allocate", allocate, "owner, ids, tenant=0, host=False"),
    METHOD("share", share, "owner, ids, count, tenant=0, host=False"),
    METHOD("free", free_ids, "owner, ids, count, outcome, tenant=0, host=False"),
    METHOD("copy_on_write", copy_on_write, "owner, pairs, tenant=0"),
    METHOD("cache", cache, "owner, ids, hashes, tenant=0"),
    METHOD("evict", evict, "ids, reason=1, owner=0, tenant=0"),
    METHOD("swap_out", swap_out, "owner, pairs, tenant=0"),
    METHOD("swap_in", swap_in, "owner, pairs, tenant=0"),
    METHOD("allocate_failed", allocate_failed, "owner, needed, free, cached, cause, tenant=0"),
    METHOD("hold", hold, "owner, ids, reason, lease_ms, tenant=0"),
    METHOD("wait", wait_for, "owner, cause, flags, blocker=0, tenant=0"),
    METHOD("admit", admit, "owner, tenant=0"),
    METHOD("reject", reject, "owner, reason, needed=0, limit=0, tenant=0"),
    METHOD("prefix_hit", prefix_hit, "owner, tokens, queried, resumed=False, tenant=0"),
    METHOD("preempt", preempt,
           "owner, beneficiary, mode, tokens_lost, blocks_freed, blocks_kept, tenant=0"),
    METHOD("resume", resume, "owner, tokens_found, tenant=0"),
    METHOD("fork", fork_from, "owner, parent, tenant=0"),
    METHOD("first_token", first_token, "owner, resumed=False, tenant=0"),
    METHOD("finish", finish,
           "owner, reason, prompt_tokens, output_tokens, computed_tokens, recomputed_tokens, "
           "tenant=0"),
    METHOD("step", step,
           "number, prefill_tokens, decode_tokens, sequences, context_tokens, waiting, "
           "schedule_ns, compute_ns, sample_ns"),
    METHOD("pool", pool,
           "total, active, cached, free, sum_of_counts, checksum, filled_slots=None, "
           "largest_free_run=None, host=False, allocate_ns=None"),
    {.ml_name = NULL},
};

static PyTypeObject hot_path_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kvpulse._emitter.HotPath",
    .tp_doc = "The C side of a recorder; `CompiledRecorder` puts it to use.",
    .tp_basicsize = sizeof(HotPath),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = deallocate,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_getset = attributes,
    .tp_methods = methods,
};

/*
 * Take the page faults of `length` bytes at `offset` of a buffer now, without the GIL: `madvise`
 * of Python's mmap would hold it for as long.
 */
static PyObject *
populate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *object;
    Py_buffer memory;
    Py_ssize_t offset, length;
    if (!PyArg_ParseTuple(args, "Onn", &object, &offset, &length)
        || PyObject_GetBuffer(object, &memory, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        return NULL;
    }
    if (offset < 0 || length < 0 || offset > memory.len || length > memory.len - offset) {
        PyBuffer_Release(&memory);
        PyErr_SetString(PyExc_ValueError, "outside the buffer");
        return NULL;
    }
    int failed = 0;
#if defined(__linux__)
    Py_BEGIN_ALLOW_THREADS
    failed = madvise((char *)memory.buf + offset, (size_t)length, POPULATE_WRITE);
    Py_END_ALLOW_THREADS
#endif
    PyBuffer_Release(&memory);
    if (failed) {
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {.ml_name = "populate",
     .ml_meth = populate,
     .ml_flags = METH_VARARGS,
     .ml_doc = "populate(memory, offset, length, /)\n--\n\nTake page faults now, without the GIL."},
    {.ml_name = NULL},
};

static int
intern_names(Method *method)
{
    int i = 0;
    for (; method->parameters[i] != NULL; i++) {
        method->interned[i] = PyUnicode_InternFromString(method->parameters[i]);
        if (method->interned[i] == NULL) {
            return 0;
        }
    }
    method->num_parameters = i;
    method->interned_reference = PyUnicode_InternFromString(method->reference);
    return method->interned_reference != NULL;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_emitter",
    .m_doc = "The recorder's hot path in C.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__emitter(void)
{
    for (size_t i = 0; i < sizeof(all_methods) / sizeof(all_methods[0]); i++) {
        if (!intern_names(all_methods[i])) {
            return NULL;
        }
    }
    PyObject *time_module = PyImport_ImportModule("time");
    if (time_module == NULL) {
        return NULL;
    }
    monotonic_ns = PyObject_GetAttrString(time_module, "monotonic_ns");
    Py_DECREF(time_module);
    if (monotonic_ns == NULL || PyType_Ready(&hot_path_type) < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL
        && PyModule_AddObjectRef(module, "HotPath", (PyObject *)&hot_path_type) < 0) {
        Py_CLEAR(module);
    }
    return module;
}
