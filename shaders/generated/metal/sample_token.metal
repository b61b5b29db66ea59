// entry sample_token, threads constant 0
#include <metal_stdlib>
using namespace metal;
#pragma clang fp contract(fast)
constant uint fc_THREADS [[function_constant(0)]];
constant uint THREADS = is_function_constant_defined(fc_THREADS) ? fc_THREADS : 256U;
struct Step
{
    uint past;
    uint tokens;
    uint rows;
    uint drawn;
    uint seed;
    float temperature;
    uint top_k;
    float top_p;
    float min_p;
    array<uint, 3> padding;
};

struct SampleArgs
{
    float device* logits;
    packed_uint4 device* chunks;
    Step device* step;
    uint device* token;
    uint device* ring;
    uint vocab;
    uint chunk;
};

struct Kept
{
    SampleArgs args;
    uint thread_1;
    uint chunks;
    uint best;
    uint low;
    uint last;
};

struct Drawing
{
    Kept kept;
    Step step;
    uint most;
    uint token;
};

struct EntryPointParams
{
    SampleArgs args;
};

struct KernelContext
{
    EntryPointParams constant* given;
    array<uint, 1024> threadgroup* bests;
    uint simd_lanes;
    array<uint, 256> threadgroup* numbers_of_subgroups;
    uint threadgroup* found;
    array<uint2, 1024> threadgroup* listed;
    array<uint2, 1024> threadgroup* ranked;
    array<float, 256> threadgroup* sums_of_subgroups;
    array<uint, 2048> threadgroup* bins;
    uint threadgroup* left;
};

float4 load_columns(float device* row, uint i, uint columns)
{
    if((columns & 3U) == 0U)
    {
        return (*(const device float4*)(row + 4U * i));
    }
    float4 loaded = float4(0.0);
    uint t1 = 4U * i;
    for(uint k = 0U; k < (min(4U, columns - t1)); k++)
    {
        loaded[k] = *(row + (t1 + k));
    }
    return loaded;
}

uint key_of(float x)
{
    uint bits = x == 0.0 ? 0U : (as_type<uint>(x));
    bits = (bits & 2147483648U) != 0U ? ~bits : bits | 2147483648U;
    return bits;
}

bool Kept_has(const Kept thread* self, uint key, uint token)
{
    uint t1 = self->low;
    return key > (self->low) || (key == t1 && token <= (self->last));
}

uint4 pcg4d(uint4 v)
{
    uint4 t1 = v * uint4(1664525U) + uint4(1013904223U);
    uint4 t2 = t1;
    t2.x = t2.x + t1.y * t1.w;
    t2.y = t2.y + t2.z * t2.x;
    t2.z = t2.z + t2.x * t2.y;
    t2.w = t2.w + t2.y * t2.z;
    uint4 t3 = t2 ^ (t2 >> (uint4(16U)));
    t2 = t3;
    t2.x = t2.x + t3.y * t3.w;
    t2.y = t2.y + t2.z * t2.x;
    t2.z = t2.z + t2.x * t2.y;
    t2.w = t2.w + t2.y * t2.z;
    return t2;
}

float gumbel(uint random)
{
    float t1 = min((float(random) + 0.5) * 2.32830643653869629e-10, 0.99999994039535522);
    float waited = t1 < 0.000244140625 ? t1 + 0.5 * t1 * t1 : - log(1.0 - t1);
    return - log(waited);
}

float logit_of(uint key)
{
    uint t1 = (key & 2147483648U) != 0U ? key ^ 2147483648U : ~key;
    return as_type<float>(t1);
}

uint Kept_score(const Kept thread* self, uint key, uint token, const Step thread* step)
{
    return key_of((logit_of(key) - logit_of(self->best)) / step->temperature + gumbel(pcg4d(uint4(token, step->drawn, step->seed, 0U)).x));
}

void Drawing_see(Drawing thread* self, uint key, uint seen)
{
    Kept t1 = self->kept;
    bool t2 = Kept_has(&t1, key, seen);
    if(!t2)
    {
        return;
    }
    Kept t3 = self->kept;
    Step t4 = self->step;
    uint t5 = Kept_score(&t3, key, seen, &t4);
    self->token = t5 > (self->most) ? seen : self->token;
    self->most = max(self->most, t5);
}

void Kept_each(const Kept thread* self, Drawing thread* visitor, uint floor, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    for(uint c = self->thread_1 / 128U; c < (self->chunks); c += THREADS / 128U)
    {
        if(((*kernelContext->bests)[c]) < floor)
        {
            continue;
        }
        uint t2 = (&self->args)->vocab;
        uint t3 = min((c + 1U) * (&self->args)->chunk, (&self->args)->vocab);
        for(uint i = c * (&self->args)->chunk + 4U * (t1 % 128U); i < t3; i += 512U)
        {
            float4 t4 = load_columns((&self->args)->logits, i / 4U, t2);
            #pragma unroll
            for(uint k = 0U; k < 4U; k++)
            {
                uint t5 = i + k;
                if(t5 < t3)
                {
                    Drawing_see(visitor, key_of(t4[k]), t5);
                }
            }
        }
    }
}

struct Adding
{
    Kept kept;
    float sum;
};

float Kept_power(const Kept thread* self, uint key)
{
    return exp(logit_of(key) - logit_of(self->best));
}

void Adding_see(Adding thread* self, uint key, uint token)
{
    Kept t1 = self->kept;
    bool t2 = Kept_has(&t1, key, token);
    float t3;
    if(t2)
    {
        Kept t4 = self->kept;
        t3 = Kept_power(&t4, key);
    }
    else
    {
        t3 = 0.0;
    }
    self->sum = self->sum + t3;
}

void Kept_each_1(const Kept thread* self, Adding thread* visitor, uint floor, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    for(uint c = self->thread_1 / 128U; c < (self->chunks); c += THREADS / 128U)
    {
        if(((*kernelContext->bests)[c]) < floor)
        {
            continue;
        }
        uint t2 = (&self->args)->vocab;
        uint t3 = min((c + 1U) * (&self->args)->chunk, (&self->args)->vocab);
        for(uint i = c * (&self->args)->chunk + 4U * (t1 % 128U); i < t3; i += 512U)
        {
            float4 t4 = load_columns((&self->args)->logits, i / 4U, t2);
            #pragma unroll
            for(uint k = 0U; k < 4U; k++)
            {
                uint t5 = i + k;
                if(t5 < t3)
                {
                    Adding_see(visitor, key_of(t4[k]), t5);
                }
            }
        }
    }
}

struct Counting
{
    Kept kept;
    bool of_token;
    uint shift;
    uint2 mask;
    uint2 prefix;
    float scale;
};

void Counting_see(Counting thread* self, uint key, uint token, KernelContext thread* kernelContext)
{
    uint t1 = ~token;
    uint2 bits = uint2(key, t1);
    Kept t2 = self->kept;
    bool t3 = Kept_has(&t2, key, token);
    if(!t3 || any((bits & (self->mask)) != (self->prefix)))
    {
        return;
    }
    uint weight;
    if((self->scale) > 0.0)
    {
        Kept t4 = self->kept;
        float t5 = Kept_power(&t4, key);
        weight = uint(t5 * self->scale + 0.5);
    }
    else
    {
        weight = 1U;
    }
    uint t6 = self->of_token ? t1 : key;
    uint t7 = atomic_fetch_add_explicit(((atomic_uint threadgroup*)(&(*kernelContext->bins)[(t6 >> (self->shift)) % 2048U])), weight, memory_order_relaxed);
}

void Kept_each_2(const Kept thread* self, Counting thread* visitor, uint floor, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    for(uint c = self->thread_1 / 128U; c < (self->chunks); c += THREADS / 128U)
    {
        if(((*kernelContext->bests)[c]) < floor)
        {
            continue;
        }
        uint t2 = (&self->args)->vocab;
        uint t3 = min((c + 1U) * (&self->args)->chunk, (&self->args)->vocab);
        for(uint i = c * (&self->args)->chunk + 4U * (t1 % 128U); i < t3; i += 512U)
        {
            float4 t4 = load_columns((&self->args)->logits, i / 4U, t2);
            #pragma unroll
            for(uint k = 0U; k < 4U; k++)
            {
                uint t5 = i + k;
                if(t5 < t3)
                {
                    Counting_see(visitor, key_of(t4[k]), t5, kernelContext);
                }
            }
        }
    }
}

struct Listing
{
    uint floor;
};

void Listing_see(Listing thread* self, uint key, uint token, KernelContext thread* kernelContext)
{
    if(key < (self->floor))
    {
        return;
    }
    uint place = atomic_fetch_add_explicit(((atomic_uint threadgroup*)(kernelContext->found)), 1U, memory_order_relaxed);
    if(place < THREADS)
    {
        (*kernelContext->listed)[place] = uint2(key, token);
    }
}

void Kept_each_3(const Kept thread* self, Listing thread* visitor, uint floor, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    for(uint c = self->thread_1 / 128U; c < (self->chunks); c += THREADS / 128U)
    {
        if(((*kernelContext->bests)[c]) < floor)
        {
            continue;
        }
        uint t2 = (&self->args)->vocab;
        uint t3 = min((c + 1U) * (&self->args)->chunk, (&self->args)->vocab);
        for(uint i = c * (&self->args)->chunk + 4U * (t1 % 128U); i < t3; i += 512U)
        {
            float4 t4 = load_columns((&self->args)->logits, i / 4U, t2);
            #pragma unroll
            for(uint k = 0U; k < 4U; k++)
            {
                uint t5 = i + k;
                if(t5 < t3)
                {
                    Listing_see(visitor, key_of(t4[k]), t5, kernelContext);
                }
            }
        }
    }
}

uint workgroup_max(uint value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    uint most = simd_max(value);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if(simd_is_first())
    {
        uint t2 = thread_1 / t1;
        (*kernelContext->numbers_of_subgroups)[t2] = most;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t3 = thread_1 % t1;
    uint all = 0U;
    uint t4 = threads / t1;
    for(uint i = t3; i < t4; i += t1)
    {
        all = max(all, (*kernelContext->numbers_of_subgroups)[i]);
    }
    return simd_max(all);
}

Kept Kept_make(const SampleArgs constant* args, uint thread_1, uint chunks, uint best, uint low, uint last)
{
    Kept t1;
    t1.args = *args;
    t1.thread_1 = thread_1;
    t1.chunks = chunks;
    t1.best = best;
    t1.low = low;
    t1.last = last;
    return t1;
}

uint Kept_reached_by(const Kept thread* self, uint count, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    if((self->thread_1) == 0U)
    {
        *kernelContext->found = 0U;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint t2 = self->chunks;
    for(uint c = t1; c < (self->chunks); c += THREADS)
    {
        uint before = 0U;
        for(uint d = 0U; d < t2; d++)
        {
            int t3 = (((*kernelContext->bests)[d]) > (*kernelContext->bests)[c] || (((*kernelContext->bests)[d]) == (*kernelContext->bests)[c] && d < c)) ? 1 : 0;
            before = before + uint(t3);
        }
        if(before == (count - 1U))
        {
            *kernelContext->found = (*kernelContext->bests)[c];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return *kernelContext->found;
}

Listing Listing_make(uint floor)
{
    Listing t1;
    t1.floor = floor;
    return t1;
}

uint Kept_list(const Kept thread* self, uint floor, KernelContext thread* kernelContext)
{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if((self->thread_1) == 0U)
    {
        *kernelContext->found = 0U;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Listing listing = Listing_make(floor);
    Kept_each_3(self, &listing, floor, kernelContext);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return *kernelContext->found;
}

float workgroup_sum_once(float value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    float sum = simd_sum(value);
    if(threads == (kernelContext->simd_lanes))
    {
        return sum;
    }
    if(simd_is_first())
    {
        uint t2 = thread_1 / t1;
        (*kernelContext->sums_of_subgroups)[t2] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float all = 0.0;
    uint t3 = threads / t1;
    for(uint i = thread_1 % t1; i < t3; i += t1)
    {
        all = all + (*kernelContext->sums_of_subgroups)[i];
    }
    return simd_sum(all);
}

uint workgroup_sum_before(uint value, uint thread_1, uint threads, KernelContext thread* kernelContext)
{
    uint t1 = kernelContext->simd_lanes;
    uint before = simd_prefix_exclusive_sum(value);
    uint sum = simd_sum(value);
    if(simd_is_first())
    {
        uint t2 = thread_1 / t1;
        (*kernelContext->numbers_of_subgroups)[t2] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint earlier = 0U;
    uint t3 = thread_1 / t1;
    for(uint i = thread_1 % t1; i < t3; i += t1)
    {
        earlier = earlier + (*kernelContext->numbers_of_subgroups)[i];
    }
    return simd_sum(earlier) + before;
}

uint wanted_of(float top_p_1)
{
    return max(1U, uint(ceil(top_p_1 * 1.073741824e+09)));
}

uint Kept_lowest_of(const Kept thread* self, float min_p_1)
{
    return min(self->best, key_of(logit_of(self->best) + log(min_p_1)));
}

uint Kept_winner(const Kept thread* self, uint score, uint token, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    uint t2 = score == workgroup_max(score, self->thread_1, THREADS, kernelContext) ? ~token : 0U;
    return ~workgroup_max(t2, t1, THREADS, kernelContext);
}

uint Kept_draw_listed(const Kept thread* self, uint count, const Step thread* step, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    bool t2 = (self->thread_1) < count;
    uint2 mine = t2 ? (*kernelContext->listed)[t1] : uint2(int2(0));
    uint rank = 0U;
    for(uint i = 0U; i < count; i++)
    {
        uint2 other = (*kernelContext->listed)[i];
        uint t3 = (*kernelContext->listed)[i].x;
        uint t4 = mine.x;
        bool kept = t3 > t4 || (t3 == t4 && (other.y) < (mine.y));
        int t5 = kept ? 1 : 0;
        rank = rank + uint(t5);
    }
    if(t2)
    {
        (*kernelContext->ranked)[rank] = mine;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint2 mine_1 = (*kernelContext->ranked)[t1];
    bool kept_1 = t1 < (min(count, step->top_k));
    float chance = kept_1 ? Kept_power(self, mine_1.x) : 0.0;
    float t6 = workgroup_sum_once(chance, t1, THREADS, kernelContext);
    uint t7 = workgroup_sum_before(uint(chance * (1.073741824e+09 / t6) + 0.5), t1, THREADS, kernelContext);
    float t8 = step->top_p;
    bool kept = (step->top_p) < 1.0 ? (kept_1 && t7 < (wanted_of(t8))) : kept_1;
    float t9 = step->min_p;
    if((step->min_p) > 0.0)
    {
        if(kept)
        {
            uint t10 = mine_1.x;
            kept = t10 >= Kept_lowest_of(self, t9);
        }
        else
        {
            kept = false;
        }
    }
    uint i = kept ? Kept_score(self, mine_1.x, mine_1.y, step) : 0U;
    return Kept_winner(self, i, mine_1.y, kernelContext);
}

Counting Counting_make(const Kept thread* kept, bool of_token, uint shift, uint2 mask, uint2 prefix, float scale)
{
    Counting t1;
    t1.kept = *kept;
    t1.of_token = of_token;
    t1.shift = shift;
    t1.mask = mask;
    t1.prefix = prefix;
    t1.scale = scale;
    return t1;
}

void Kept_fill(const Kept thread* self, bool of_token, uint shift, uint2 mask, uint2 prefix, float scale, uint floor, KernelContext thread* kernelContext)
{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for(uint b = self->thread_1; b < 2048U; b += THREADS)
    {
        (*kernelContext->bins)[b] = 0U;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    Counting counting = Counting_make(self, of_token, shift, mask, prefix, scale);
    Kept_each_2(self, &counting, floor, kernelContext);
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

void Kept_find(const Kept thread* self, uint wanted, KernelContext thread* kernelContext)
{
    uint t1 = self->thread_1;
    if((self->thread_1) == 0U)
    {
        *kernelContext->found = 2048U;
    }
    uint top = 2047U - t1 * (2048U / THREADS);
    uint sum = 0U;
    for(uint k = 0U; k < (2048U / THREADS); k++)
    {
        sum = sum + (*kernelContext->bins)[top - k];
    }
    uint t2 = workgroup_sum_before(sum, t1, THREADS, kernelContext);
    if(t2 < wanted && (t2 + sum) >= wanted)
    {
        uint before = t2;
        uint bin;
        for(bin = top; (before + (*kernelContext->bins)[bin]) < wanted; bin -= 1U)
        {
            before = before + (*kernelContext->bins)[bin];
        }
        *kernelContext->found = bin;
        *kernelContext->left = wanted - before;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

void Kept_cut(Kept thread* self, uint key)
{
    self->last = key > (self->low) ? 4294967295U : self->last;
    self->low = max(self->low, key);
}

void Kept_keep(Kept thread* self, uint wanted, float scale, uint floor, KernelContext thread* kernelContext)
{
    uint2 t1 = uint2(int2(0));
    uint2 mask = t1;
    uint2 prefix = t1;
    uint t2 = wanted;
    #pragma unroll
    for(uint level = 0U; level < 5U; level++)
    {
        bool of_token = level >= 3U;
        uint shift = of_token ? 11U * (4U - level) : (level == 2U ? 0U : 21U - 11U * level);
        bool t3 = level == 2U;
        uint digit = t3 ? 1023U : 2047U;
        Kept t4 = *self;
        Kept_fill(&t4, of_token, shift, mask, prefix, scale, floor, kernelContext);
        Kept t5 = *self;
        Kept_find(&t5, t2, kernelContext);
        if((*kernelContext->found) == 2048U)
        {
            return;
        }
        uint t6 = *kernelContext->left;
        int t7 = of_token ? 1 : 0;
        uint bit = uint(t7);
        mask[bit] = (mask[bit]) | (digit << shift);
        prefix[bit] = (prefix[bit]) | ((*kernelContext->found) << shift);
        if(t3)
        {
            Kept_cut(self, prefix.x);
            uint one;
            if(scale > 0.0)
            {
                Kept t8 = *self;
                float t9 = Kept_power(&t8, self->low);
                one = uint(t9 * scale + 0.5);
            }
            else
            {
                one = 1U;
            }
            if((t6 + one) > (*kernelContext->bins)[*kernelContext->found])
            {
                return;
            }
        }
        t2 = t6;
    }
    self->last = min(self->last, (~prefix.y) & 4194303U);
}

Adding Adding_make(const Kept thread* kept, float sum)
{
    Adding t1;
    t1.kept = *kept;
    t1.sum = sum;
    return t1;
}

float Kept_total(const Kept thread* self, KernelContext thread* kernelContext)
{
    Adding adding = Adding_make(self, 0.0);
    Kept_each_1(self, &adding, self->low, kernelContext);
    return workgroup_sum_once(adding.sum, self->thread_1, THREADS, kernelContext);
}

Drawing Drawing_make(const Kept thread* kept, const Step thread* step, uint most, uint token)
{
    Drawing t1;
    t1.kept = *kept;
    t1.step = *step;
    t1.most = most;
    t1.token = token;
    return t1;
}

uint Kept_draw(const Kept thread* self, const Step thread* step, KernelContext thread* kernelContext)
{
    Drawing drawing = Drawing_make(self, step, 0U, 0U);
    Kept_each(self, &drawing, self->low, kernelContext);
    return Kept_winner(self, drawing.most, drawing.token, kernelContext);
}

uint Kept_next(Kept thread* self, const Step thread* step, KernelContext thread* kernelContext)
{
    uint t1 = step->top_k;
    bool top_k_1 = 0U < (step->top_k) && t1 < ((&self->args)->vocab);
    if(top_k_1 && t1 <= (min(self->chunks, THREADS)))
    {
        Kept t2 = *self;
        uint t3 = Kept_reached_by(&t2, t1, kernelContext);
        Kept t4 = *self;
        uint t5 = Kept_list(&t4, t3, kernelContext);
        if(t5 <= THREADS)
        {
            Kept t6 = *self;
            return Kept_draw_listed(&t6, t5, step, kernelContext);
        }
        Kept_keep(self, t1, 0.0, t3, kernelContext);
    }
    else
    {
        if(top_k_1)
        {
            Kept_keep(self, t1, 0.0, 0U, kernelContext);
        }
    }
    float t7 = step->top_p;
    bool t8 = (step->top_p) < 1.0;
    if(!(t8))
    {
        top_k_1 = false;
    }
    float all;
    if(top_k_1)
    {
        Kept t9 = *self;
        all = Kept_total(&t9, kernelContext);
    }
    else
    {
        if(t8)
        {
            all = 0.0;
            for(uint c = self->thread_1; c < (self->chunks); c += THREADS)
            {
                float t10 = as_type<float>((uint4(*((&self->args)->chunks + c))).z);
                uint t11 = (*kernelContext->bests)[c];
                Kept t12 = *self;
                float t13 = Kept_power(&t12, t11);
                all = all + t10 * t13;
            }
            all = workgroup_sum_once(all, self->thread_1, THREADS, kernelContext);
        }
        else
        {
            all = 0.0;
        }
    }
    float t14 = step->min_p;
    if((step->min_p) > 0.0)
    {
        Kept t15 = *self;
        uint t16 = Kept_lowest_of(&t15, t14);
        Kept_cut(self, t16);
    }
    if(t8)
    {
        Kept_keep(self, wanted_of(t7), 1.073741824e+09 / all, max(self->low, key_of(logit_of(self->best) + log((1.0 - t7) * all / float((&self->args)->vocab)) - 0.00999999977648258)), kernelContext);
    }
    Kept t17 = *self;
    return Kept_draw(&t17, step, kernelContext);
}

[[kernel]] void sample_token(uint thread_index [[thread_index_in_threadgroup]], uint _builtinWaveLaneCount_0 [[threads_per_simdgroup]], EntryPointParams constant* given [[buffer(0)]])
{
    KernelContext kernelContext;
    kernelContext.given = given;
    threadgroup array<uint, 1024> bests;
    kernelContext.bests = &bests;
    threadgroup array<uint, 256> numbers_of_subgroups;
    kernelContext.numbers_of_subgroups = &numbers_of_subgroups;
    threadgroup uint found;
    kernelContext.found = &found;
    threadgroup array<uint2, 1024> listed;
    kernelContext.listed = &listed;
    threadgroup array<uint2, 1024> ranked;
    kernelContext.ranked = &ranked;
    threadgroup array<float, 256> sums_of_subgroups;
    kernelContext.sums_of_subgroups = &sums_of_subgroups;
    threadgroup array<uint, 2048> bins;
    kernelContext.bins = &bins;
    threadgroup uint left;
    kernelContext.left = &left;
    kernelContext.simd_lanes = _builtinWaveLaneCount_0;
    Step step = *given->args.step;
    uint chunks = (given->args.vocab + given->args.chunk - 1U) / given->args.chunk;
    uint best = 0U;
    uint token = 4294967295U;
    uint broken = 0U;
    for(uint c = thread_index; c < chunks; c += THREADS)
    {
        uint4 t1 = uint4(*(given->args.chunks + c));
        uint t2 = t1.x;
        (*kernelContext.bests)[c] = t2;
        uint t3 = t1.y;
        int t4 = t3 == 4294967295U ? 1 : 0;
        broken = broken | uint(t4);
        if(t2 > best)
        {
            token = t3;
        }
        best = max(best, t2);
    }
    uint t5 = workgroup_max(broken, thread_index, THREADS, &kernelContext);
    uint t6 = workgroup_max(best, thread_index, THREADS, &kernelContext);
    best = best == t6 ? ~token : 0U;
    uint t7 = ~workgroup_max(best, thread_index, THREADS, &kernelContext);
    if((step.temperature) > 0.0 && t5 == 0U)
    {
        Kept kept = Kept_make(&given->args, thread_index, chunks, t6, 0U, 4294967295U);
        Step t8 = step;
        token = Kept_next(&kept, &t8, &kernelContext);
    }
    else
    {
        token = t7;
    }
    if(thread_index == 0U)
    {
        uint device* t9 = given->args.ring + step.drawn % 256U;
        bool t10 = t5 != 0U;
        best = t10 ? 4294967295U : token;
        *t9 = best;
        SampleArgs t11 = given->args;
        best = t10 ? 0U : token;
        *t11.token = best;
        given->args.step->past = step.past + 1U;
        given->args.step->drawn = step.drawn + 1U;
    }
}

