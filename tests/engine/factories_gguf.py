"""Write small GGUF files, honest or not."""

import struct

ALIGNMENT = 32
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    """Return a typed metadata value; an array's content is (element kind, [elements])."""
    return struct.pack("<I", kind) + payload(kind, content)


def payload(kind, content):
    if kind == STRING:
        return string(content)
    if kind == ARRAY:
        element, elements = content
        packed = b"".join(payload(element, one) for one in elements)
        return struct.pack("<IQ", element, len(elements)) + packed
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f"}[kind], content)


def tensor_row(name, sizes, type_id, offset):
    """Return a row of the tensor table; `sizes` are fastest first, as in the file."""
    return (
        string(name)
        + struct.pack("<I", len(sizes))
        + struct.pack(f"<{len(sizes)}Q", *sizes)
        + struct.pack("<IQ", type_id, offset)
    )


def gguf_bytes(metadata=(), tensors=(), *, magic=b"GGUF", version=3, counts=None):
    """Return a file.

    Args:
        metadata: (key, kind, content) each.
        tensors: (name, sizes, type id, packed bytes) each.
        magic: The first four bytes.
        version: The version word.
        counts: (tensors, keys) to claim; by default what there is.
    """
    num_tensors, num_keys = counts or (len(tensors), len(metadata))
    head = magic + struct.pack("<IQQ", version, num_tensors, num_keys)
    for key, kind, content in metadata:
        head += string(key) + value(kind, content)
    body = b""
    for name, sizes, type_id, packed in tensors:
        head += tensor_row(name, sizes, type_id, len(body))
        body += packed + bytes(-len(packed) % ALIGNMENT)
    return head + bytes(-len(head) % ALIGNMENT) + body
