"""A radix tree over blocks of tokens: what of a beginning is kept, in as few nodes as it takes.

An edge is a run of blocks: their keys (the bytes of their tokens) one after the other, and their
block ids. An edge is cut where two contents part, and holds at most `MAX_EDGE` blocks, so that no
act on it costs more than comparing or copying a few kilobytes. Each scope (tenant, adapter, mask,
window) has a root of its own, so nothing is ever found across scopes.

The tree knows block ids and keys; who holds a block, and whether it may go, is its caller's matter.
"""

from typing import Final, NamedTuple

from engine.errors import PoolError

MAX_EDGE: Final = 64


class Node:
    """One edge and what follows it.

    Attributes:
        key: Keys of the edge's blocks, `width` bytes each; a root's is empty.
        blocks: The edge's block ids.
        children: What follows, by the key of its first block.
    """

    __slots__ = ("blocks", "children", "key", "parent", "width")

    def __init__(self, parent: "Node | None", key: bytes, blocks: list[int], width: int) -> None:
        self.parent = parent
        self.key = key
        self.blocks = blocks
        self.width = width
        self.children: dict[bytes, Node] = {}


class Place(NamedTuple):
    """A place in the tree: after the first `num_blocks` blocks of a node's edge."""

    node: Node
    num_blocks: int


class Descent(NamedTuple):
    """How far down a key is kept: the blocks on the way, and where the way ends."""

    found: list[int]
    end: Place


class Leaves(NamedTuple):
    """Of some blocks, those that were taken out of the tree, and those that something follows."""

    taken: list[int]
    inner: list[int]


class RadixTree:
    """The tree of one pool."""

    def __init__(self, total_blocks: int) -> None:
        self._roots: dict[bytes, Node] = {}
        self._node_of: list[Node | None] = [None] * total_blocks

    def root(self, scope: bytes, width: int) -> Place:
        """Return where a scope's contents begin; a new scope gets a root when it is attached to."""
        root = self._roots.get(scope)
        return Place(Node(None, scope, [], width) if root is None else root, 0)

    def place_after(self, block_id: int) -> Place | None:
        """Return the place after a block, None if the tree does not have it."""
        node = self._node_of[block_id]
        if node is None:
            return None
        blocks = node.blocks
        if blocks[-1] == block_id:
            return Place(node, len(blocks))
        return Place(node, blocks.index(block_id) + 1)

    def match(self, scope: bytes, key: bytes, end: int) -> list[int]:
        """Return the blocks that hold the beginning of a key, of which `end` bytes count."""
        node = self._roots.get(scope)
        found: list[int] = []
        at = 0
        while node is not None and at < end:
            node = node.children.get(key[at : at + node.width])
            if node is None:
                break
            after = at + len(node.key)
            if after > end or not key.startswith(node.key, at):
                found += node.blocks[: _num_common(node.key, key, at, end, node.width)]
                break
            found += node.blocks
            at = after
        return found

    def descend(self, start: Place, key: bytes) -> Descent:
        """Follow a key down from a place."""
        node, n = start
        found: list[int] = []
        at, end, width = 0, len(key), node.width
        while at < end:
            if n == len(node.blocks):
                child = node.children.get(key[at : at + width])
                if child is None:
                    break
                node, n = child, 0
            common = _num_common(node.key[n * width :] if n else node.key, key, at, end, width)
            found += node.blocks[n : n + common]
            n += common
            at += common * width
            if n < len(node.blocks):
                break
        return Descent(found, Place(node, n))

    def attach(self, place: Place, key: bytes, blocks: list[int]) -> None:
        """Put blocks under their keys below a place, where nothing of them is yet."""
        if not blocks:  # all slid out of a window
            return
        node, n = place
        width = node.width
        if node.parent is None:
            self._roots.setdefault(node.key, node)
        elif n < len(node.blocks):
            node = self._split(node, n)
        elif not node.children and n < MAX_EDGE:
            room = MAX_EDGE - n
            node.key += key[: room * width]
            node.blocks += blocks[:room]
            self._settle(node, blocks[:room])
            key, blocks = key[room * width :], blocks[room:]
        while blocks:
            edge = key[: MAX_EDGE * width]
            child = Node(node, edge, blocks[:MAX_EDGE], width)
            node.children[edge[:width]] = child
            self._settle(child, child.blocks)
            node, key, blocks = child, key[MAX_EDGE * width :], blocks[MAX_EDGE:]

    def take_leaf(self, block_id: int) -> bool:
        """Take a block out, if nothing follows it; False where something does."""
        node = self._node_of[block_id]
        if node is None:
            return True
        if node.children or node.blocks[-1] != block_id:
            return False
        self._node_of[block_id] = None
        node.blocks.pop()
        if node.blocks:
            node.key = node.key[: -node.width]
        else:
            self._drop(node)
        return True

    def take_leaves(self, block_ids: list[int]) -> Leaves:
        """Take out, one after the other, those blocks that nothing follows."""
        node_of = self._node_of
        taken: list[int] = []
        inner: list[int] = []
        shortened: dict[int, Node] = {}
        for block_id in block_ids:
            node = node_of[block_id]
            if node is None:
                taken.append(block_id)
                continue
            blocks = node.blocks
            if node.children or blocks[-1] != block_id:
                inner.append(block_id)
                continue
            taken.append(block_id)
            node_of[block_id] = None
            blocks.pop()
            if not blocks:
                self._drop(node)
            else:
                shortened[id(node)] = node
        for node in shortened.values():  # a key is cut once, however many blocks its edge lost
            node.key = node.key[: len(node.blocks) * node.width]
        return Leaves(taken, inner)

    def take_branch(self, block_id: int) -> list[int]:
        """Take a block out together with all that follows it; return their ids."""
        node = self._node_of[block_id]
        assert node is not None, "the tree has it"
        n = node.blocks.index(block_id)
        if n:
            self._split(node, n)
        self._drop(node)
        taken: list[int] = []
        pending = [node]
        while pending:
            node = pending.pop()
            taken += node.blocks
            pending += node.children.values()
        for taken_id in taken:
            self._node_of[taken_id] = None
        return taken

    def blocks_before(self, block_id: int) -> list[int]:
        """Return the blocks on the way from the root to a block, itself left out."""
        node = self._node_of[block_id]
        assert node is not None, "the tree has it"
        way = node.blocks[: node.blocks.index(block_id)]
        while (node := node.parent) is not None:
            way = node.blocks + way
        return way

    def block_ids(self) -> list[int]:
        """Return every block of the tree."""
        return [block_id for block_id, node in enumerate(self._node_of) if node is not None]

    def num_nodes(self) -> int:
        """Return how many nodes hold them, roots left out."""
        return len({id(node) for node in self._node_of if node is not None})

    def check(self) -> None:
        """Walk the whole tree and raise `PoolError` at the first thing that is not as it says."""
        seen: list[int] = []
        pending = list(self._roots.values())
        for root in pending:
            if root.blocks or not root.children:
                raise PoolError("a scope without content has a root")
        while pending:
            node = pending.pop()
            if node.parent is not None and len(node.key) != len(node.blocks) * node.width:
                raise PoolError(f"an edge of {len(node.blocks)} blocks has {len(node.key)} bytes")
            if len(node.blocks) > MAX_EDGE or (node.parent is not None and not node.blocks):
                raise PoolError(f"an edge holds {len(node.blocks)} blocks")
            for block_id in node.blocks:
                if self._node_of[block_id] is not node:
                    raise PoolError(f"block {block_id} is in another node than it says")
            for first, child in node.children.items():
                if child.parent is not node or child.key[: child.width] != first:
                    raise PoolError("a child is under a key that is not its own")
            seen += node.blocks
            pending += node.children.values()
        if sorted(seen) != self.block_ids():
            raise PoolError("blocks say that they are in the tree which cannot be reached")

    def _split(self, node: Node, n: int) -> Node:
        """Cut an edge after `n` blocks; return the new node, which holds the first ones."""
        parent, width = node.parent, node.width
        assert parent is not None, "a root has no edge"
        upper = Node(parent, node.key[: n * width], node.blocks[:n], width)
        parent.children[upper.key[:width]] = upper
        node.parent, node.key, node.blocks = upper, node.key[n * width :], node.blocks[n:]
        upper.children[node.key[:width]] = node
        self._settle(upper, upper.blocks)
        return upper

    def _settle(self, node: Node, blocks: list[int]) -> None:
        node_of = self._node_of
        for block_id in blocks:
            node_of[block_id] = node

    def _drop(self, node: Node) -> None:
        """Take a node out of its parent; a root that is left without any goes too."""
        parent = node.parent
        assert parent is not None, "a root has no edge"
        del parent.children[node.key[: node.width]]
        if parent.parent is None and not parent.children:
            del self._roots[parent.key]


def _num_common(edge: bytes, key: bytes, at: int, end: int, width: int) -> int:
    """Return how many whole blocks `edge` and `key` from `at` to `end` have in common."""
    most = min(len(edge), end - at) // width
    least = 0
    if key.startswith(edge[: most * width], at):
        return most
    most -= 1
    while least < most:  # halving: each comparison is one memcmp
        middle = (least + most + 1) // 2
        if key.startswith(edge[: middle * width], at):
            least = middle
        else:
            most = middle - 1
    return least
