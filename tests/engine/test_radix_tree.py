"""The radix tree by itself: beginnings, edges, leaves; and the index on top of it."""

from itertools import count, takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PoolError
from engine.prefix_index.radix_tree import MAX_EDGE, RadixTree
from tests.engine.factories_pool_world import PoolWorld

WIDTH = 4


def key_of(letters):
    """Return a key of one block per letter."""
    return b"".join(letter.encode() * WIDTH for letter in letters)


def tree_of(**blocks_by_letters):
    """Return a tree to which contents were added one after the other, as sequences do."""
    tree = RadixTree(1_000)
    for letters, blocks in blocks_by_letters.items():
        add(tree, letters, blocks)
    return tree


def add(tree, letters, blocks, scope=b"s"):
    """Add what the tree does not have of some content; return how many blocks it had."""
    key = key_of(letters)
    found, place = tree.descend(tree.root(scope, WIDTH), key)
    if len(found) < len(letters):
        tree.attach(place, key[len(found) * WIDTH :], blocks[len(found) :])
    return len(found)


def found(tree, letters, scope=b"s"):
    return tree.match(scope, key_of(letters), len(letters) * WIDTH)


def test_any_common_beginning_is_found():
    tree = tree_of(abcd=[1, 2, 3, 4], abxy=[1, 2, 5, 6], q=[7])

    assert found(tree, "abcd") == [1, 2, 3, 4]
    assert found(tree, "abxz") == [1, 2, 5]
    assert found(tree, "abq") == [1, 2]
    assert found(tree, "qa") == [7]
    assert found(tree, "xabcd") == []
    tree.check()


def test_an_edge_is_cut_only_where_contents_part():
    tree = tree_of(abcd=[1, 2, 3, 4])
    assert tree.num_nodes() == 1

    add(tree, "abxy", [1, 2, 5, 6])
    assert tree.num_nodes() == 3

    add(tree, "abxyz", [1, 2, 5, 6, 7])
    assert tree.num_nodes() == 3, "a leaf grows"


def test_only_so_much_of_a_key_as_counts_is_matched():
    tree = tree_of(abcd=[1, 2, 3, 4])

    assert tree.match(b"s", key_of("abcd"), 3 * WIDTH) == [1, 2, 3]
    assert tree.match(b"s", key_of("abcd"), 0) == []


def test_nothing_is_found_across_scopes():
    tree = tree_of(ab=[1, 2])

    assert found(tree, "ab", scope=b"t") == []
    add(tree, "ab", [3, 4], scope=b"t")
    assert found(tree, "ab", scope=b"t") == [3, 4]
    tree.check()


def test_only_leaves_can_be_taken_and_an_emptied_scope_leaves_nothing():
    tree = tree_of(ab=[1, 2], ac=[1, 3])

    assert not tree.take_leaf(1)
    assert tree.take_leaf(2)
    assert found(tree, "ab") == [1]
    assert tree.take_leaf(3)
    assert tree.take_leaf(1)
    tree.check()
    assert tree._roots == {}
    assert tree.take_leaf(1), "what is not in the tree may always go"


def test_a_branch_goes_with_all_that_follows():
    tree = tree_of(abcd=[1, 2, 3, 4], abxy=[1, 2, 5, 6])

    assert sorted(tree.take_branch(2)) == [2, 3, 4, 5, 6]
    assert found(tree, "abcd") == [1]
    tree.check()


def test_a_long_content_is_a_chain_of_short_edges():
    tree = RadixTree(1_000)
    letters = [chr(33 + i % 90) for i in range(200)]
    add(tree, letters, list(range(200)))

    assert found(tree, letters) == list(range(200))
    assert tree.num_nodes() == -(-200 // MAX_EDGE)
    assert tree.blocks_before(150) == list(range(150))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=9), max_size=12), st.data())
def test_the_tree_finds_what_a_plain_table_of_beginnings_has(contents, data):
    tree, table, fresh = RadixTree(1_000), {}, count()
    for content in contents:
        beginnings = [content[: i + 1] for i in range(len(content))]
        blocks = [table.get(beginning) for beginning in beginnings]
        blocks = [next(fresh) if block is None else block for block in blocks]
        add(tree, content, blocks)
        table |= dict(zip(beginnings, blocks, strict=True))
        tree.check()
        for beginning in data.draw(st.lists(st.sampled_from(sorted(table)), max_size=3)):
            is_leaf = not any(other[:-1] == beginning for other in table)
            if beginning in table:
                assert tree.take_leaf(table[beginning]) == is_leaf
            if is_leaf:
                table.pop(beginning, None)
        asked = data.draw(st.text("ab", max_size=9))
        kept = list(takewhile(table.__contains__, (asked[: i + 1] for i in range(len(asked)))))
        assert found(tree, asked) == [table[beginning] for beginning in kept]


@pytest.mark.parametrize("spoil", ["key", "place", "width"])
def test_a_recount_raises_where_the_tree_disagrees_with_itself(spoil):
    tree = tree_of(abcd=[1, 2, 3, 4], abxy=[1, 2, 5, 6])
    node = tree._node_of[3]
    if spoil == "key":
        node.key = node.key[:-1]
    elif spoil == "place":
        tree._node_of[3] = tree._node_of[1]
    else:
        node.blocks.append(9)

    with pytest.raises(PoolError):
        tree.check()


def run_through(world, tokens):
    """Let a sequence compute all its tokens."""
    seq = world.arrive(tokens)
    world.admit(seq)
    world.run(seq, len(tokens), 0)
    return seq


def test_two_that_compute_the_same_at_once_end_up_on_the_same_blocks():
    world = PoolWorld("radix")
    first, second = (world.arrive([1, 0, 1, 1, 0]) for _ in range(2))
    world.admit(first)
    world.admit(second)
    assert world.pool.num_active == 6

    world.run(first, 5, 0)
    world.run(second, 5, 1)

    assert first.block_table.block_ids[:2] == second.block_table.block_ids[:2]
    assert world.pool.num_active == 4
    assert world.index.num_exchanged == 2
    world.check()


def test_what_slid_away_before_it_was_offered_leaves_no_scope_without_content():
    world = PoolWorld("radix")
    seq = run_through(world, [0, 0])
    world.swap_out(seq)
    world.pool.clear_cached()
    world.swap_in(seq)
    world.slide(seq, 1)

    world.run(seq, 1, 0)

    assert seq.block_table.num_null == 1
    world.check()


def test_the_last_block_of_a_wholly_kept_prompt_is_computed_anew_and_then_given_up():
    world = PoolWorld("radix")
    first = run_through(world, [1, 0, 1, 1])
    hit = world.admit(second := world.arrive([1, 0, 1, 1]))
    assert len(hit.block_ids) == 1

    world.run(second, 2, 0)

    assert second.block_table.block_ids[:2] == first.block_table.block_ids[:2]
    world.check()


def test_what_a_sequence_arrives_with_is_named_without_hashing_what_is_kept():
    world = PoolWorld("radix")
    first = run_through(world, [1, 0, 1, 1, 0, 0])
    asked = []
    extend = world.index._hasher._tokens.extend
    world.index._hasher._tokens.extend = lambda seq, n: (
        asked.append(n - len(seq.block_hashes)) or extend(seq, n)
    )

    second = world.arrive([1, 0, 1, 1, 1, 1, 0])

    assert asked == [1]
    assert second.block_hashes[:2] == first.block_hashes[:2]
    assert second.block_hashes[2] != first.block_hashes[2]


def test_a_block_that_is_needed_while_all_leaves_are_in_use_goes_with_its_branch():
    world = PoolWorld("radix", num_blocks=6)
    seq = run_through(world, [1, 0, 1, 1, 0, 0])  # 3 full blocks
    world.slide(seq, 2)
    assert world.pool.num_cached == 2
    kept = world.pool.cached_blocks()

    taken = world.pool.allocate(9, 5 - 2)
    assert not isinstance(taken, tuple)
    assert world.pool.num_cached == 2, "free ones first"
    (last,) = world.pool.allocate(9, 1)

    assert last in kept
    assert world.index.order.num_branches_cut == 1
    world.index.check()
    assert world.pool.hashes().keys() & {seq.block_table.block_ids[2]}, "kept, but not found"


def test_an_inner_block_that_the_batch_tier_used_last_waits_for_what_others_need():
    world = PoolWorld("radix", num_blocks=8)
    deep = world.arrive([1, 0, 1, 1, 0], tier=0)
    world.admit(deep)
    world.run(deep, 5, 0)
    shallow = world.arrive([1, 0, 0], tier=1)
    world.admit(shallow)
    world.run(shallow, 1, 0)
    first, second = deep.block_table.block_ids[:2]
    world.end(deep)
    world.end(shallow)
    assert world.pool.num_cached == 2

    world.pool.allocate(9, 7)

    assert world.pool.cached_blocks() == [first]
    assert second not in world.pool.hashes()
    assert world.index.order.num_put_back == 1
