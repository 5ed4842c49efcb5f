"""Stand-ins for flash-attn and flashinfer: their documented signatures, computed in torch.

They accept what the packages' documentation accepts and nothing else: a wrong name, shape, dtype or
layout fails. Signatures: flash_attn/flash_attn_interface.py of flash-attn 2.8.3 and
flashinfer/decode.py and prefill.py of FlashInfer 0.6.18.
"""

import torch

from kernels import reference

HALF = (torch.float16, torch.bfloat16)


def require_int32(**tensors):
    for name, tensor in tensors.items():
        assert tensor.dtype == torch.int32, f"{name} is {tensor.dtype}"
        assert tensor.is_contiguous(), name


def window_of(left):
    return None if left < 0 else left + 1


class FakeFlashAttn:
    """The package `flash_attn`."""

    def __init__(self):
        self.calls = []

    def flash_attn_with_kvcache(
        self,
        q,
        k_cache,
        v_cache,
        k=None,
        v=None,
        rotary_cos=None,
        rotary_sin=None,
        cache_seqlens=None,
        cache_batch_idx=None,
        cache_leftpad=None,
        block_table=None,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        rotary_interleaved=True,
        alibi_slopes=None,
        num_splits=0,
        return_softmax_lse=False,
    ):
        batch, num_queries, num_heads, head_dim = q.shape
        assert causal
        require_int32(cache_seqlens=cache_seqlens, block_table=block_table)
        self._require_cache(q, k_cache, v_cache)
        starts = torch.arange(batch + 1) * num_queries
        out = self._attend(
            q.reshape(-1, num_heads, head_dim),
            (k_cache, v_cache),
            (starts, cache_seqlens, block_table),
            window_size,
        )
        self.calls.append("decode")
        return out.view(q.shape)

    def flash_attn_varlen_func(
        self,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        dropout_p=0.0,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
        softcap=0.0,
        alibi_slopes=None,
        deterministic=False,
        return_attn_probs=False,
        block_table=None,
    ):
        assert causal
        require_int32(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, block_table=block_table)
        self._require_cache(q, k, v)
        context_lens = cu_seqlens_k.diff()
        assert isinstance(max_seqlen_q, int)
        assert isinstance(max_seqlen_k, int)
        assert cu_seqlens_q[0] == 0
        assert max_seqlen_q == cu_seqlens_q.diff().max()
        assert max_seqlen_k == context_lens.max()
        self.calls.append("prefill")
        return self._attend(q, (k, v), (cu_seqlens_q, context_lens, block_table), window_size)

    def _require_cache(self, q, k_cache, v_cache):
        assert q.dtype in HALF
        assert k_cache.dtype == q.dtype
        assert v_cache.dtype == q.dtype
        assert k_cache.shape[1] % 256 == 0, "page_block_size must be a multiple of 256"
        assert q.stride(-1) == k_cache.stride(-1) == v_cache.stride(-1) == 1

    def _attend(self, query, cache, rows, window_size):
        left, right = window_size
        assert window_size == (-1, -1) or right == 0
        starts, context_lens, block_table = rows
        return reference.paged_prefill(
            query=query,
            key_cache=cache[0],
            value_cache=cache[1],
            block_tables=block_table,
            query_starts=starts,
            context_lens=context_lens,
            window=window_of(left),
        )


class _PagedWrapper:
    """What both of FlashInfer's wrappers share."""

    def __init__(self, float_workspace_buffer, kv_layout):
        assert kv_layout == "NHD"
        assert float_workspace_buffer.dtype == torch.uint8
        assert not float_workspace_buffer.any(), "must be zeros at its first use"
        self._planned = None

    def _plan(self, starts, indptr, indices, last_page_len, sizes, window_left, dtypes):
        require_int32(starts=starts, indptr=indptr, indices=indices, last_page_len=last_page_len)
        assert len(indptr) == len(starts) == len(last_page_len) + 1
        assert indptr[0] == 0
        assert indptr[-1] == len(indices)
        page_size = sizes[3]
        assert (last_page_len >= 1).all()
        assert (last_page_len <= page_size).all()
        num_pages = indptr.diff()
        tables = torch.zeros(len(num_pages), int(num_pages.max()), dtype=torch.int32)
        for row, count in enumerate(num_pages.tolist()):
            tables[row, :count] = indices[indptr[row] : indptr[row + 1]]
        context_lens = (num_pages - 1) * page_size + last_page_len
        self._planned = (starts, tables, context_lens, sizes, window_of(window_left), dtypes)

    def _run(self, q, paged_kv_cache):
        assert self._planned is not None, "plan() comes before run()"
        starts, tables, context_lens, sizes, window, dtypes = self._planned
        num_qo_heads, num_kv_heads, head_dim, page_size = sizes
        keys, values = paged_kv_cache
        assert q.is_contiguous()
        assert q.dtype == dtypes[0]
        assert q.dtype in HALF
        assert keys.dtype == values.dtype == dtypes[1]
        assert q.shape == (int(starts[-1]), num_qo_heads, head_dim)
        assert keys.shape[1:] == values.shape[1:] == (page_size, num_kv_heads, head_dim)
        return reference.paged_prefill(
            query=q,
            key_cache=keys,
            value_cache=values,
            block_tables=tables,
            query_starts=starts,
            context_lens=context_lens,
            window=window,
        )


class _DecodeWrapper(_PagedWrapper):
    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        use_tensor_cores=False,
        paged_kv_indptr_buffer=None,
        paged_kv_indices_buffer=None,
        paged_kv_last_page_len_buffer=None,
        backend="auto",
        jit_args=None,
    ):
        super().__init__(float_workspace_buffer, kv_layout)
        self.use_tensor_cores = use_tensor_cores

    # Optional arguments by keyword alone: by position they are deprecated there.
    def plan(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        *,
        pos_encoding_mode="NONE",
        window_left=-1,
        window_right=0,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        data_type=None,
        sm_scale=None,
        rope_scale=None,
        rope_theta=None,
        non_blocking=True,
        block_tables=None,
        seq_lens=None,
        fixed_split_size=None,
        disable_split_kv=False,
        q_len_per_req=1,
    ):
        starts = torch.arange(len(indptr), dtype=torch.int32)
        sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._plan(
            starts,
            indptr,
            indices,
            last_page_len,
            sizes,
            window_left,
            (q_data_type, kv_data_type or q_data_type),
        )

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        enable_pdl=None,
        window_left=None,
        sinks=None,
        q_len_per_req=None,
        skip_softmax_threshold_scale_factor=None,
        kv_cache_sf=None,
    ):
        assert not args
        return self._run(q, paged_kv_cache)


class _PrefillWrapper(_PagedWrapper):
    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        qo_indptr_buf=None,
        paged_kv_indptr_buf=None,
        paged_kv_indices_buf=None,
        paged_kv_last_page_len_buf=None,
        custom_mask_buf=None,
        mask_indptr_buf=None,
        backend="auto",
        jit_args=None,
        jit_kwargs=None,
    ):
        super().__init__(float_workspace_buffer, kv_layout)

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        head_dim_vo=None,
        custom_mask=None,
        packed_custom_mask=None,
        causal=False,
        pos_encoding_mode="NONE",
        use_fp16_qk_reduction=False,
        sm_scale=None,
        window_left=-1,
        logits_soft_cap=None,
        rope_scale=None,
        rope_theta=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        non_blocking=True,
        prefix_len_ptr=None,
        token_pos_in_items_ptr=None,
        token_pos_in_items_len=0,
        max_item_len_ptr=None,
        seq_lens=None,
        seq_lens_q=None,
        block_tables=None,
        max_token_per_sequence=None,
        max_sequence_kv=None,
        fixed_split_size=None,
        disable_split_kv=False,
    ):
        assert causal
        sizes = (num_qo_heads, num_kv_heads, head_dim_qk, page_size)
        self._plan(
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            sizes,
            window_left,
            (q_data_type, kv_data_type or q_data_type),
        )

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        enable_pdl=None,
        window_left=None,
        sinks=None,
        kv_cache_sf=None,
        skip_softmax_threshold_scale_factor=None,
        use_fp16_softmax=None,
        uses_spcompress=None,
    ):
        assert not args
        return self._run(q, paged_kv_cache)


class FakeFlashInfer:
    """The package `flashinfer`."""

    BatchDecodeWithPagedKVCacheWrapper = _DecodeWrapper
    BatchPrefillWithPagedKVCacheWrapper = _PrefillWrapper
