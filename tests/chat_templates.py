"""Chat templates with tools, in the two styles that most models use."""

CHATML = """\
{%- if messages[0].role == 'system' or tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}
{%- if tools %}
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
{%- endif %}<|im_end|>
{% endif %}
{%- set last = namespace(user=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role != 'system' or not loop.first %}<|im_start|>{{ message.role }}
{% if message.reasoning and loop.index0 > last.user %}<think>
{{ message.reasoning }}
</think>
{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if reasoning_effort is defined %}<think>
{{ raise_exception('it always thinks') if reasoning_effort == 'none' else reasoning_effort }}
{% endif %}
{%- endif %}"""

LLAMA3 = """\
{{- bos_token }}<|start_header_id|>system<|end_header_id|>

{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}<|eot_id|>
{%- for message in messages %}
{%- if message.role == 'system' %}
{{- '' if loop.first else raise_exception('the system speaks first') }}
{%- else %}<|start_header_id|>
{{- 'ipython' if message.role == 'tool' else message.role }}<|end_header_id|>

{% if tools and loop.index == 2 %}Functions:
{%- for tool in tools %}
{{ tool.function | tojson(indent=4) }}

{% endfor %}
{%- endif %}
{%- if message.content is string %}{{ message.content | trim }}{% endif %}
{%- for call in message.tool_calls or [] %}
{{- '{"name": "' + call.function.name + '", "parameters": ' }}
{{- call.function.arguments | tojson }}}
{%- endfor %}<|eot_id|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
