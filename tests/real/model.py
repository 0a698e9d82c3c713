#!/usr/bin/env python3
"""Writes a model of 20 MB with known answers that llama.cpp can load.

It is a real model of the `llama` architecture: tokenizer, chat template, attention, feed-forward. Its weights are
constructed rather than learned. Each token is its own direction, the layer adds nothing to it, and the output maps each token
of a sentence to the next one. So the answer is known, whatever the sampling, and a check can compare it.

    model.py FILE
"""

import sys

import gguf
import numpy as np

CONTEXT = 32768
FEED_FORWARD = HEAD = 32

ANSWERS, CALLS, SEES, THINKS, TELLS = "<|answers|>", "<|calls|>", "<|sees|>", "<|thinks|>", "<|tells|>"
ANSWER = ["Hello", "▁from", "▁a", "▁tiny", "▁model."]
CALL = ["<tool_call>", "\n", '{"name":▁"list_dir",', '▁"arguments":▁{"path":▁"."}}', "\n</tool_call>"]
SIGHT = ["There", "▁are", "▁notes."]
THOUGHT = ["<think>", "Hm.", "</think>", "Thought", "▁about."]
STORY = ["word0", *(f"▁word{number}" for number in range(1, 1200))]

# The last token of the prompt selects the answer, and the template selects that token: a message with the word `list` is
# answered by a call, and a result with the word `notes` by a sentence about it; `ponder` is answered after some reasoning,
# and `story` by 1,200 words.
TEMPLATE = """\
{%- if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}
{%- if add_generation_prompt %}
{%- set last = messages[-1] %}
{%- if tools and last.role == 'user' and 'list' in last.content %}<|calls|>
{%- elif last.role == 'tool' and 'notes' in last.content %}<|sees|>
{%- elif last.role == 'user' and 'ponder' in last.content %}<|thinks|>
{%- elif last.role == 'user' and 'story' in last.content %}<|tells|>
{%- else %}<|answers|>{% endif %}
{%- endif %}"""

CONTROL = ["<s>", "</s>", ANSWERS, CALLS, SEES, THINKS, TELLS]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ANSWER + CALL + SIGHT + THOUGHT + STORY
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
    out.add_embedding_length(size)
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
    output = np.zeros((size, size))
    for first, words in ((ANSWERS, ANSWER), (CALLS, CALL), (SEES, SIGHT), (THINKS, THOUGHT), (TELLS, STORY)):
        chain = [first, *words, "</s>"]
        for this, following in zip(chain, chain[1:]):
            output[TOKENS.index(following), TOKENS.index(this)] = 2.0  # times the root of the size, from the norm before it
    return {
        "token_embd.weight": np.eye(size),
        "blk.0.attn_norm.weight": np.ones(size),
        "blk.0.attn_q.weight": some(HEAD, size),
        "blk.0.attn_k.weight": some(HEAD, size),
        "blk.0.attn_v.weight": some(HEAD, size),
        "blk.0.attn_output.weight": np.zeros((size, HEAD)),
        "blk.0.ffn_norm.weight": np.ones(size),
        "blk.0.ffn_gate.weight": some(FEED_FORWARD, size),
        "blk.0.ffn_up.weight": some(FEED_FORWARD, size),
        "blk.0.ffn_down.weight": np.zeros((size, FEED_FORWARD)),
        "output_norm.weight": np.ones(size),
        "output.weight": output,
    }


if __name__ == "__main__":
    write(sys.argv[1])
