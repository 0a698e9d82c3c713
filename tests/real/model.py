#!/usr/bin/env python3
"""Writes a model of 5 MB with known answers that llama.cpp can load.

It is a real model of the `llama` architecture: tokenizer, chat template, attention, feed-forward. Its weights are
constructed rather than learned. Each token has a direction almost at right angles to all others, the layer adds nothing to it,
and the output maps each token of a sentence to the next one. So the answer is known, whatever the sampling, and a check can
compare it.

    model.py FILE
"""

import sys

import gguf
import numpy as np

CONTEXT = 32768
WIDTH = 256
FEED_FORWARD = HEAD = 32

ANSWERS, CALLS, SEES, COUNTS, THINKS, PLANS, REMEMBERS = (
    f"<|{name}|>" for name in ["answers", "calls", "sees", "counts", "thinks", "plans", "remembers"]
)
ANSWER = ["Hello", "▁from", "▁a", "▁tiny", "▁model."]
CALL = ["<tool_call>", "\n", '{"name":▁"list_dir",', '▁"arguments":▁{"path":▁"."}}', "\n</tool_call>"]
SIGHT = ["There", "▁are", "▁notes."]
NUMBERS = [f"▁{number}" for number in range(1, 2001)]
THOUGHT = ["<think>", "\nA", "▁greeting.", "\n</think>\n\n"]
PLAN = ["<think>\n", "Look", "▁first.", "\n</think>", "\n\n"]
MEMORY = ["I", "▁remember", "▁my", "▁thoughts."]
SENTENCES = [
    [ANSWERS, *ANSWER],
    [CALLS, *CALL],
    [SEES, *SIGHT],
    [COUNTS, "1", *NUMBERS[1:]],
    NUMBERS,  # a count that continues at its first number
    [THINKS, *THOUGHT, *ANSWER],
    [PLANS, *PLAN, *CALL],
    [REMEMBERS, *MEMORY],
]

# The last token of the prompt selects the answer, and the template selects that token by the words of the last message. It
# continues a count from its last number, and it tells whether the thoughts before a call, or in the previous turn, came back.
TEMPLATE = """\
{%- if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}
{%- if add_generation_prompt %}
{%- set last = messages[-1] %}
{%- set before = messages[-2] if messages | length > 1 else last %}
{%- if before.reasoning_content or '</think>' in (before.content or '') %}<|remembers|>
{%- elif tools and last.role == 'user' and 'list' in last.content %}
{%- if 'think' in last.content %}<|plans|>{% else %}<|calls|>{% endif %}
{%- elif last.role == 'tool' and 'notes' in last.content %}<|sees|>
{%- elif last.role == 'user' and 'think' in last.content %}<|thinks|>
{%- elif last.role == 'user' and 'count' in last.content %}<|counts|>
{%- elif last.role == 'user' and 'Continue it' in last.content %}{{ ' ' + before.content.split(' ')[-1] }}
{%- else %}<|answers|>{% endif %}
{%- endif %}"""

CONTROL = ["<s>", "</s>", *(sentence[0] for sentence in SENTENCES if sentence[0].startswith("<|"))]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = [*ANSWER, *CALL, *SIGHT, "1", *NUMBERS, *THOUGHT, *PLAN, *MEMORY]
TOKENS = ["<unk>", *CONTROL, *BYTES, *WORDS]
KINDS = (
    [gguf.TokenType.UNKNOWN]
    + [gguf.TokenType.CONTROL] * len(CONTROL)
    + [gguf.TokenType.BYTE] * len(BYTES)
    + [gguf.TokenType.NORMAL] * len(WORDS)
)


def write(path):
    size = len(TOKENS)
    assert len(set(TOKENS)) == size, "a word that two sentences share would end both of them alike"
    out = gguf.GGUFWriter(path, "llama")
    out.add_name("tiny")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(FEED_FORWARD)
    out.add_head_count(1)
    out.add_head_count_kv(1)
    out.add_key_length(HEAD)
    out.add_value_length(HEAD)
    out.add_rope_dimension_count(HEAD)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(size)

    out.add_tokenizer_model("llama")
    out.add_token_list(TOKENS)
    out.add_token_scores([0.0] * size)
    out.add_token_types(KINDS)
    out.add_unk_token_id(TOKENS.index("<unk>"))
    out.add_bos_token_id(TOKENS.index("<s>"))
    out.add_eos_token_id(TOKENS.index("</s>"))
    out.add_chat_template(TEMPLATE)

    for name, values in weights(size).items():
        out.add_tensor(name, values.astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def weights(size):
    random = np.random.default_rng(0)
    some = lambda *shape: random.normal(0, 0.1, shape)
    directions = random.choice([-1.0, 1.0], (size, WIDTH))
    output = np.zeros((size, WIDTH))
    for this, following in {pair for sentence in SENTENCES for pair in zip(sentence, [*sentence[1:], "</s>"])}:
        output[TOKENS.index(following)] += directions[TOKENS.index(this)]
    return {
        "token_embd.weight": directions,
        "blk.0.attn_norm.weight": np.ones(WIDTH),
        "blk.0.attn_q.weight": some(HEAD, WIDTH),
        "blk.0.attn_k.weight": some(HEAD, WIDTH),
        "blk.0.attn_v.weight": some(HEAD, WIDTH),
        "blk.0.attn_output.weight": np.zeros((WIDTH, HEAD)),
        "blk.0.ffn_norm.weight": np.ones(WIDTH),
        "blk.0.ffn_gate.weight": some(FEED_FORWARD, WIDTH),
        "blk.0.ffn_up.weight": some(FEED_FORWARD, WIDTH),
        "blk.0.ffn_down.weight": np.zeros((WIDTH, FEED_FORWARD)),
        "output_norm.weight": np.ones(WIDTH),
        "output.weight": output / 4,
    }


if __name__ == "__main__":
    write(sys.argv[1])
