"""Every attention mechanism in plain PyTorch, as one would write it without custom kernels.

Queries are [batch, heads, seq_q, d_head], keys and values [batch, kv_heads, seq_k, ...]. The
definitions are those of crates/oracle, which attention.py checks the results against.
"""

import dataclasses
import math

import torch
import torch.nn.functional as F

CHUNK = 128  # of linear attention


@dataclasses.dataclass
class Call:
    """Options and parameters of a mechanism."""

    keys: dict  # of the mechanism's config
    causal: bool  # is_causal of SDPA: as many queries as keys
    scale: float | None = None
    visible: torch.Tensor | None = None  # bool mask, includes causality
    vector: torch.Tensor | None = None  # [heads, d_head]
    matrix: torch.Tensor | None = None  # [heads, d_head, d_head]
    directions: torch.Tensor | None = None  # [n_features, d_head], or [rounds, parts, each, d_head]
    decay: torch.Tensor | None = None  # [heads], float64
    sink: torch.Tensor | None = None  # [heads]
    table: torch.Tensor | None = None  # [heads, num_buckets]
    log_decay: torch.Tensor | None = None  # [batch, heads, seq_k, 1 or d_head]
    strength: torch.Tensor | None = None  # [batch, heads, seq_k, 1]
    branch_gates: torch.Tensor | None = None  # [batch, heads, seq_k, 3]
    differential: torch.Tensor | None = None  # [4, d_head / 2]
    projection: torch.Tensor | None = None  # [2, rank, length]
    blocks: torch.Tensor | None = None  # [blocks, blocks], True is visible
    # Fixed for a comparison, otherwise computed in each call.
    noise: torch.Tensor | None = None  # [batch, heads, seq_q, seq_k]
    hashes: torch.Tensor | None = None  # [batch, heads, seq, rounds]
    state: torch.Tensor | None = None  # of linear attention, when decoding

    def head(self, example, head):
        """The call of one query head of one example."""

        def select(x, *indices):
            # Dimensions of 1 are broadcast.
            starts = [min(i, size - 1) for i, size in zip(indices, x.shape)] if x is not None else []
            return x[tuple(slice(i, i + 1) for i in starts)] if starts else None

        names = ["vector", "matrix", "decay", "sink", "table"]
        parts = {name: select(getattr(self, name), head) for name in names}
        names = ["visible", "noise", "hashes", "state", "log_decay", "strength", "branch_gates"]
        parts |= {name: select(getattr(self, name), example, head) for name in names}
        return dataclasses.replace(self, **parts)

    def scale_or(self, default):
        return default if self.scale is None else self.scale


def repeat_kv(query, *tensors):
    return [x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in tensors]


def mask_scores(call, scores):
    if call.visible is not None:
        return scores.masked_fill(~call.visible, -math.inf)
    if call.causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        return scores.masked_fill(future, -math.inf)
    return scores


def dot_scores(call, query, key):
    scores = query @ key.transpose(-2, -1) * call.scale_or(query.shape[-1] ** -0.5)
    return mask_scores(call, scores)


# Softmax attention.


def standard(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    return dot_scores(call, query, key).softmax(-1) @ value


def sdpa(call, query, key, value):
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=call.visible,
        is_causal=call.causal and call.visible is None,
        scale=call.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def dot(call, query, key, value):
    return sdpa(dataclasses.replace(call, scale=call.scale_or(1.0)), query, key, value)


def multiplicative(call, query, key, value):
    return dot(call, query @ call.matrix, key, value)


def additive(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    # Some queries at a time: [batch, heads, queries, seq_k, d_head] of 2^25 elements.
    queries = max(1, 2**25 // (query.shape[0] * query.shape[1] * key.shape[2] * key.shape[3]))
    vector = call.vector[:, None, :, None]
    parts = [
        (torch.tanh(part[..., None, :] + key[:, :, None]) @ vector).squeeze(-1)
        for part in query.split(queries, dim=2)
    ]
    scores = call.scale_or(1.0) * torch.cat(parts, dim=2)
    return mask_scores(call, scores).softmax(-1) @ value


def hard(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    scores = dot_scores(call, query, key)
    gumbel = call.noise if call.noise is not None else -torch.empty_like(scores).exponential_().log()
    scores = scores + gumbel
    selected = scores.argmax(-1, keepdim=True)
    if not torch.is_grad_enabled():
        return value.gather(2, selected.expand(-1, -1, -1, value.shape[-1]))
    soft = (scores / call.keys["temperature"]).softmax(-1)
    one_hot = torch.zeros_like(soft).scatter_(-1, selected, 1.0)
    return (one_hot - soft.detach() + soft) @ value  # straight-through


def local_p(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    window, seq_k = call.keys["window"], key.shape[2]
    position = seq_k * torch.sigmoid(torch.tanh(query @ call.matrix) @ call.vector[..., None])
    # [batch, heads, seq_q, 2 * window + 2]: all keys of the window, and one outside.
    j = position.detach().floor().long() + torch.arange(-window, window + 2, device=query.device)
    distance = j - position
    visible = (distance.abs() <= window) & (j >= 0) & (j < seq_k)
    if call.causal:
        visible &= j <= torch.arange(seq_k, device=query.device)[:, None]
    index = j.clamp(0, seq_k - 1).flatten(2)[..., None]
    nearby = lambda x: x.gather(2, index.expand(-1, -1, -1, x.shape[-1])).unflatten(2, j.shape[2:])
    scores = (nearby(key) @ query[..., None]).squeeze(-1) * call.scale_or(query.shape[-1] ** -0.5)
    # A finite value, because a window may have no visible key.
    weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1) * visible
    weights = weights * torch.exp(-(distance**2) / (2 * (window / 2) ** 2))
    return (weights[..., None, :] @ nearby(value)).squeeze(-2)


def sink(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    scores = dot_scores(call, query, key)
    sinks = call.sink[:, None, None].to(scores.dtype).expand(*scores.shape[:3], 1)
    return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1] @ value


def sigmoid(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    length = call.keys.get("length") or key.shape[2]
    return torch.sigmoid(dot_scores(call, query, key) - math.log(length)) @ value


def with_bias(call, query, key, value, bias):
    """SDPA with a bias of all pairs, whose mask is that of the call."""
    bias = mask_scores(call, bias.expand(-1, -1, query.shape[2], key.shape[2]).to(query.dtype))
    call = dataclasses.replace(call, visible=bias, causal=False)
    return sdpa(call, query, key, value)


def positions(query, key):
    """Those of queries and keys, aligned at the end."""
    j = torch.arange(key.shape[2], device=key.device)
    return torch.arange(query.shape[2], device=key.device) + key.shape[2] - query.shape[2], j


def relative(call, query, key, value):
    keys, (i, j) = call.keys, positions(query, key)
    count, distance = keys["num_buckets"], j - i[:, None]
    bucket = torch.zeros_like(distance)
    if keys["bidirectional"]:
        count //= 2
        bucket, distance = (distance > 0) * count, distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    steps = (distance.clamp(min=1) / exact).log() / math.log(keys["max_distance"] / exact)
    large = (exact + (steps * (count - exact)).long()).clamp(max=count - 1)
    bucket = bucket + torch.where(distance < exact, distance, large)
    return with_bias(call, query, key, value, call.table[:, bucket][None])


def forgetting(call, query, key, value):
    i, _ = positions(query, key)
    (log_decay,) = widen(call.log_decay)
    sums = log_decay[..., 0].cumsum(-1)
    return with_bias(call, query, key, value, sums[..., i, None] - sums[..., None, :])


def differential(call, query, key, value):
    a, b, c, d = widen(*call.differential)
    factor = (a @ b).exp() - (c @ d).exp() + call.keys["lambda_init"]
    halves = zip(query.chunk(2, -1), key.chunk(2, -1))
    first, second = (sdpa(call, q, k, value) for q, k in halves)
    return first - factor.to(first.dtype) * second


# Softmax attention with a pattern.


def pattern(kind, call, seq_q, seq_k, device):
    """The keys that a query attends to, [seq_q, seq_k]; None if the mechanism has no pattern."""
    keys = call.keys
    j = torch.arange(seq_k, device=device)
    i = torch.arange(seq_q, device=device)[:, None]
    own = i + seq_k - seq_q  # the last query is aligned with the last key
    match kind:
        case "sliding-window":
            return (own - j).abs() <= keys["window"]
        case "local-m":
            return (i - j).abs() <= keys["window"]
        case "block":
            return own // keys["block_size"] == j // keys["block_size"]
        case "strided":
            stride = keys.get("stride") or round(math.sqrt(seq_k))
            return ((own - j).abs() < stride) | ((own - j) % stride == 0)
        case "fixed":
            block = keys.get("block_size") or round(math.sqrt(seq_k))
            return (own // block == j // block) | (j % block >= block - keys["summary"])
        case "sink" if keys.get("window") is not None:
            return ((own - j).abs() <= keys["window"]) | (own < keys["first"]) | (j < keys["first"])
        case "longformer":
            window = (own - j).abs() <= keys["window"]
            return window | (own < keys["global"]) | (j < keys["global"])
        case "bigbird":
            return call.blocks[own // keys["block_size"], j // keys["block_size"]]
    return None


# LSH attention (Reformer).


def lsh_hashes(call, query):
    """[batch, heads, seq, rounds]: the nearest of the directions and their opposites."""
    products = torch.einsum("bhnd,rped->bhnrpe", query, call.directions)
    nearest = torch.cat([products, -products], dim=-1).argmax(-1)
    base = 2 * call.directions.shape[2]
    return nearest[..., 0] if nearest.shape[-1] == 1 else base * nearest[..., 0] + nearest[..., 1]


def lsh(call, query, key, value):
    del key  # keys are the normalised queries
    (value,) = repeat_kv(query, value)
    seq, size = query.shape[2], call.keys["bucket_size"]
    chunks = -(-seq // size)
    hashes = lsh_hashes(call, query.detach()) if call.hashes is None else call.hashes
    order = hashes.transpose(-2, -1).argsort(dim=-1, stable=True)  # [batch, heads, rounds, seq]
    slot = order.argsort(dim=-1)
    # Slots after the last position are padding.
    position = F.pad(order, (0, chunks * size - seq), value=-1).unflatten(-1, (chunks, size))

    def with_previous(x):
        return x if chunks == 1 else torch.cat([x, x.roll(1, dims=3)], dim=4)

    def sorted_chunks(x):
        index = position.clamp(min=0).flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
        return x.gather(2, index).unflatten(2, position.shape[2:])

    queries = sorted_chunks(query)
    keys = with_previous(sorted_chunks(F.normalize(query, dim=-1)))
    values = with_previous(sorted_chunks(value))
    scores = queries @ keys.transpose(-2, -1) * call.scale_or(query.shape[-1] ** -0.5)

    i, j = position[..., :, None], with_previous(position)[..., None, :]
    # A key that is near in several rounds counts once in all of them.
    chunk_of = sorted_chunks((slot // size).transpose(-2, -1)).int()
    near = torch.zeros(scores.shape, dtype=torch.uint8, device=scores.device)
    for other in range(slot.shape[2]):
        own, nearby = chunk_of[..., :, None, other], with_previous(chunk_of)[..., None, :, other]
        near += (own == nearby) | ((own - 1) % chunks == nearby)
    scores = scores - near.clamp(min=1).to(scores.dtype).log()  # 0 only for padding
    # A position attends to itself only if there is no other.
    scores = scores.masked_fill(i == j, -5e4)
    masked = (j < 0) | (j > i) if call.causal else j < 0
    scores = scores.masked_fill(masked, torch.finfo(scores.dtype).min)

    log_sum = scores.logsumexp(-1, keepdim=True)
    context = torch.cat([(scores - log_sum).exp() @ values, log_sum], dim=-1)
    index = slot[..., None].expand(-1, -1, -1, -1, context.shape[-1])
    context = context.flatten(3, 4).gather(3, index)
    weights = context[..., -1:].softmax(2)
    return (weights * context[..., :-1]).sum(2)


# Selected blocks (MoBA), and a gated sum with means of blocks and a window (NSA).


def block_means(x, size):
    """[batch, heads, blocks, width]; the last block may be shorter."""
    seq = x.shape[2]
    starts = torch.arange(0, seq, size, device=x.device)
    counts = (seq - starts).clamp(max=size)[:, None]
    return F.pad(x, (0, 0, 0, -seq % size)).unflatten(2, (-1, size)).sum(3) / counts


def selected_keys(scores, own, size, top_k, causal, seq_k):
    """The keys of the own block of a query and of those with the largest scores, `top_k` together."""
    block = torch.arange(scores.shape[-1], device=scores.device)
    scores = scores.masked_fill(own // size == block, math.inf)
    if causal:
        scores = scores.masked_fill(block > own // size, -math.inf)
    best = scores.topk(min(top_k, len(block)), dim=-1)
    selected = torch.zeros_like(scores, dtype=torch.bool)
    selected = selected.scatter(-1, best.indices, best.values > -math.inf)
    keys = selected.repeat_interleave(size, -1)[..., :seq_k]
    return keys & (torch.arange(seq_k, device=keys.device) <= own) if causal else keys


def moba(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    size, seq_k = call.keys["block_size"], key.shape[2]
    own, _ = positions(query, key)
    scores = query.detach() @ block_means(key.detach(), size).transpose(-2, -1)
    visible = selected_keys(scores, own[:, None], size, call.keys["top_k"], call.causal, seq_k)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=call.scale)


def native_sparse(call, query, key, value):
    size, seq_k, kv_heads = call.keys["block_size"], key.shape[2], key.shape[1]
    causal = call.causal or query.shape[2] == 1 < seq_k  # a decoding step
    own, j = positions(query, key)
    own = own[:, None]
    key, value = repeat_kv(query, key, value)
    key_means, value_means = block_means(key, size), block_means(value, size)
    scale = call.scale_or(query.shape[-1] ** -0.5)
    scores = query @ key_means.transpose(-2, -1) * scale  # [batch, heads, seq_q, blocks]
    if causal:
        last = size * torch.arange(1, scores.shape[-1] + 1, device=scores.device) - 1
        scores = scores.masked_fill(last > own, -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)  # NaN if there is no complete block
    # Query heads that share keys select the same blocks.
    group = query.shape[1] // kv_heads
    importance = weights.detach().unflatten(1, (kv_heads, group)).sum(2)
    selected = selected_keys(importance, own, size, call.keys["top_k"], causal, seq_k)
    window = (own - j).abs() <= call.keys["window"]
    if causal:
        window = window & (j <= own)
    branches = [
        weights @ value_means,
        F.scaled_dot_product_attention(
            query, key, value, attn_mask=selected.repeat_interleave(group, 1), scale=scale
        ),
        F.scaled_dot_product_attention(query, key, value, attn_mask=window, scale=scale),
    ]
    gates = call.branch_gates[:, :, seq_k - query.shape[2] :].split(1, dim=-1)
    return sum(gate * branch for gate, branch in zip(gates, branches))


# Attention to means or sums over the sequence.


def segment_means(x, count):
    """The means of segments of rows; the first ones are longer by one row if the number is not divisible."""
    seq, count = x.shape[2], min(count, x.shape[2])
    sizes = [seq // count + (i < seq % count) for i in range(count)]
    return torch.stack([segment.mean(2) for segment in x.split(sizes, dim=2)], dim=2)


def nystrom(call, query, key, value):
    dtype = query.dtype
    query, key, value = widen(query, key, value)
    key, value = repeat_kv(query, key, value)
    queries, keys = (segment_means(x, call.keys["landmarks"]) for x in (query, key))
    matrix = dot_scores(call, queries, keys).softmax(-1)
    inverse = matrix.transpose(-2, -1) / matrix.sum(-2, keepdim=True).amax(-1, keepdim=True)
    identity = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    for _ in range(call.keys["iterations"]):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = inverse @ (13 * identity - product @ inner) / 4
    return sdpa(call, query, keys, inverse @ sdpa(call, queries, key, value)).to(dtype)


def linformer(call, query, key, value):
    dtype = query.dtype
    query, key, value, projection = widen(query, key, value, call.projection)
    of_keys, of_values = projection[..., : key.shape[2]]
    return sdpa(call, query, of_keys @ key, of_values @ value).to(dtype)


# Linear attention.


def causal_scan(query, key, value, decay=None):
    """sum_j decay^(i - j) (query_i . key_j) value_j over j <= i, in chunks."""
    seq = query.shape[2]
    chunk = min(CHUNK, seq)
    split = lambda x: F.pad(x, (0, 0, 0, -seq % chunk)).unflatten(2, (-1, chunk))
    query, key, value = split(query), split(key), split(value)
    scores = (query @ key.transpose(-2, -1)).tril()
    if decay is None:
        states = key.transpose(-2, -1) @ value
        return (scores @ value + query @ (states.cumsum(2) - states)).flatten(2, 3)[:, :, :seq]
    power = lambda exponent: (decay[:, None, None, None] ** exponent).to(query.dtype)
    i = torch.arange(chunk, device=query.device)
    c = torch.arange(query.shape[2], device=query.device)
    states = (key * power(chunk - 1 - i[:, None])).transpose(-2, -1) @ value
    # Of the chunks before each chunk.
    between = (c[:, None] - c - 1).clamp(min=0) * chunk
    between = (power(between)[:, 0] * (c[:, None] > c)).to(query.dtype)
    states = torch.einsum("hcx,bhxfd->bhcfd", between, states)
    within = scores * power((i[:, None] - i).clamp(min=0))
    return (within @ value + (query * power(i[:, None] + 1)) @ states).flatten(2, 3)[:, :, :seq]


def normalised(call, query, key, value):
    """Linear attention with features of queries and keys."""
    value = F.pad(value, (0, 1), value=1.0)  # the last column is the normaliser
    if call.causal:
        context = causal_scan(query, key, value)
    else:
        state = key.transpose(-2, -1) @ value
        context = query @ (state if call.state is None else call.state + state)
    # Zeros for a query without weights.
    return context[..., :-1] / context[..., -1:].clamp(min=1e-30)


def linear_features(call, query, key):
    features = {
        "elu1": lambda x: F.elu(x) + 1,
        "relu": lambda x: F.relu(x) + 1e-3,
    }[call.keys["feature_map"]]
    return features(call.scale_or(1.0) * query), features(key)


def performer_features(call, query, key):
    scale = call.scale_or(query.shape[-1] ** -0.5)
    features = []
    for x in (query * math.copysign(math.sqrt(abs(scale)), scale), key * math.sqrt(abs(scale))):
        exponent = x @ call.directions.T.to(x.dtype) - (x * x).sum(-1, keepdim=True) / 2
        features.append(exponent.exp())
    return features


def based_features(call, query, key):
    """Dot products are 1 + s + s^2 / 2."""
    scale = call.scale_or(query.shape[-1] ** -0.5)
    features = []
    for x in (query * math.copysign(math.sqrt(abs(scale)), scale), key * math.sqrt(abs(scale))):
        pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) / math.sqrt(2)
        features.append(torch.cat([torch.ones_like(x[..., :1]), x, pairs], dim=-1))
    return features


def cosformer_features(call, query, key):
    i, j = positions(query, key)
    longest = max(query.shape[2], key.shape[2])
    quarter = math.pi / 2 / (call.keys.get("length") or longest)  # of a position
    features = []
    for x, position in ((call.scale_or(1.0) * query, i), (key, j)):
        x, angle = F.relu(x), (position.to(x.dtype) * quarter)[:, None]
        features.append(torch.cat([x * angle.cos(), x * angle.sin()], dim=-1))
    return features


def widen(*tensors):
    """Half precision as float32, which sums over a long sequence need."""
    half = (torch.float16, torch.bfloat16)
    return [x.float() if x.dtype in half else x for x in tensors]


def in_float32(attend):
    return lambda call, *tensors: attend(call, *widen(*tensors)).to(tensors[0].dtype)


@in_float32
def linear(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    return normalised(call, *linear_features(call, query, key), value)


@in_float32
def performer(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    return normalised(call, *performer_features(call, query, key), value)


@in_float32
def cosformer(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    return normalised(call, *cosformer_features(call, query, key), value)


@in_float32
def based(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    return normalised(call, *based_features(call, query, key), value)


@in_float32
def retention(call, query, key, value):
    key, value = repeat_kv(query, key, value)
    query = query * call.scale_or(query.shape[-1] ** -0.5)
    if call.state is not None:
        decay = call.decay[:, None, None].to(query.dtype)
        return query @ (decay * call.state + key.transpose(-2, -1) @ value)
    return causal_scan(query, key, value, call.decay)


# Gated recurrences.


def gated(call, query, key, value, is_delta, scale):
    """S_t = a_t S_(t-1) + b_t k_t v_t^T, or with the delta rule. The scale is a default.

    A step if there is a state, otherwise in chunks. Returns the context and the state.
    """
    if is_delta:
        length = lambda x: (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        query, key = query / length(query), key / length(key)
    log_decay, strength = call.log_decay, call.strength
    if log_decay is None:
        log_decay = torch.zeros_like(key[..., :1])
    if strength is None:
        strength = torch.ones_like(key[..., :1])
    key, value, log_decay, strength = repeat_kv(query, key, value, log_decay, strength)
    query = query * call.scale_or(scale)
    if call.state is not None:
        state = log_decay.exp().transpose(-2, -1) * call.state
        update = strength * (value - key @ state if is_delta else value)
        state = state + key.transpose(-2, -1) @ update
        return query @ state, state
    seq, per_row = query.shape[2], log_decay.shape[-1] > 1
    chunk = min(16 if per_row else 64, seq)
    split = lambda x: F.pad(x, (0, 0, 0, -seq % chunk)).unflatten(2, (-1, chunk))
    query, key, value, log_decay, strength = map(split, (query, key, value, log_decay, strength))
    sums = log_decay.cumsum(3)

    def products(left):
        """left_i . (a_i / a_j) key_j for j <= i."""
        if per_row:
            quotient = (sums[..., :, None, :] - sums[..., None, :, :]).clamp(max=0).exp()
            return torch.einsum("bhcix,bhcijx,bhcjx->bhcij", left, quotient, key)
        quotient = (sums - sums.transpose(-2, -1)).clamp(max=0).exp()
        return left @ key.transpose(-2, -1) * quotient

    within = products(query).tril()
    query, value = query * sums.exp(), value * strength
    key_to_end = (key * (sums[..., -1:, :] - sums).exp()).transpose(-2, -1)
    total = sums[..., -1, :, None].exp()
    erased = None
    if is_delta:
        lower = (strength * products(key)).tril(-1)
        right = torch.cat([value, strength * key * sums.exp()], dim=-1)
        solved = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True)
        value, erased = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    state = query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1])
    context = []
    for c in range(query.shape[2]):
        update = value[:, :, c] if erased is None else value[:, :, c] - erased[:, :, c] @ state
        context.append(within[:, :, c] @ update + query[:, :, c] @ state)
        state = total[:, :, c] * state + key_to_end[:, :, c] @ update
    return torch.cat(context, dim=2)[:, :, :seq], state


def recurrence(is_delta, scale=None):
    def attend(call, query, key, value):
        return gated(call, query, key, value, is_delta, scale or query.shape[-1] ** -0.5)[0]

    return in_float32(attend)


def gated_state(kind, call, query, key, value):
    """The state after the given keys, and the call of a step after them."""
    query, key, value = widen(query, key, value)
    gates = {name: getattr(call, name) for name in ("log_decay", "strength")}
    seq = key.shape[2]
    at = lambda part: {name: None if x is None else x[:, :, part] for name, x in gates.items()}
    before = dataclasses.replace(call, **at(slice(0, seq)))
    queries = query.expand(-1, -1, seq, -1)
    _, state = gated(before, queries, key, value, kind in DELTA_RULES, 1.0)
    return dataclasses.replace(call, state=state, **at(slice(seq, seq + 1)))


def linear_state(kind, call, query, key, value):
    """The state after the given keys."""
    query, key, value = widen(query, key, value)
    key, value = repeat_kv(query, key, value)
    if kind in ("retention", "lightning"):
        distance = torch.arange(key.shape[2] - 1, -1, -1, device=key.device)[:, None]
        key = key * (call.decay[:, None, None] ** distance).to(key.dtype)
    else:
        features = FEATURES[kind]
        _, key = features(call, query, key)
        value = F.pad(value, (0, 1), value=1.0)
    return key.transpose(-2, -1) @ value


# Of the mechanisms whose state does not depend on the length.
FEATURES = {"linear": linear_features, "performer": performer_features, "based": based_features}
DELTA_RULES = ["delta", "gated-delta", "kda"]
RECURRENCES = ["mamba2", "gla", *DELTA_RULES]

MECHANISMS = {
    "standard": standard,
    "flash": sdpa,
    "multi-query": sdpa,
    "grouped-query": sdpa,
    "mla": sdpa,
    "dot": dot,
    "multiplicative": multiplicative,
    "additive": additive,
    "hard": hard,
    "sink": sink,
    "sigmoid": sigmoid,
    "differential": differential,
    "relative": relative,
    "forgetting": forgetting,
    "sliding-window": sdpa,
    "local-m": sdpa,
    "local-p": local_p,
    "block": sdpa,
    "strided": sdpa,
    "fixed": sdpa,
    "longformer": sdpa,
    "bigbird": sdpa,
    "lsh": lsh,
    "moba": moba,
    "native-sparse": native_sparse,
    "nystrom": nystrom,
    "linformer": linformer,
    "linear": linear,
    "performer": performer,
    "cosformer": cosformer,
    "based": based,
    "retention": retention,
    "lightning": retention,
    "mamba2": recurrence(is_delta=False, scale=1.0),
    "gla": recurrence(is_delta=False),
    "delta": recurrence(is_delta=True),
    "gated-delta": recurrence(is_delta=True),
    "kda": recurrence(is_delta=True),
}


def prepare(kind, call, query, key, value):
    """Computes the mask, which does not depend on the inputs, or the cache of a decoding step.

    Returns the call, the keys and the values.
    """
    seq_q, seq_k = query.shape[2], key.shape[2]
    is_step = seq_q == 1 and seq_k > 1
    if is_step and kind in ("retention", "lightning", *FEATURES):
        call = dataclasses.replace(call, causal=False)
        state = linear_state(kind, call, query, key[:, :, :-1], value[:, :, :-1])
        return dataclasses.replace(call, state=state), key[:, :, -1:], value[:, :, -1:]
    if is_step and kind in RECURRENCES:
        call = gated_state(kind, call, query, key[:, :, :-1], value[:, :, :-1])
        return call, key[:, :, -1:], value[:, :, -1:]
    visible = pattern(kind, call, seq_q, seq_k, query.device)
    if visible is None:
        return call, key, value
    if is_step and call.visible is None:
        cached = visible[0]
        return call, key[:, :, cached], value[:, :, cached]
    if call.visible is not None:
        visible = visible & call.visible
    elif call.causal:
        visible = visible.tril()
    visible = visible if visible.dim() == 4 else visible[None, None]
    return dataclasses.replace(call, visible=visible), key, value
