#!/usr/bin/env bash
# litellm 1.108.7, its proxy, with `rpm: 2` of a model and the routing strategy `usage-based-routing-v2`.
#
# Guess: a 429 with `Retry-After`, as the error inside the proxy has one, and with the `x-ratelimit-*` fields of accepted answers.
# Seen: the field is there under another name, as if a provider had sent it: `llm_provider-retry-after: 60`, always the whole
# minute, while the quota is back at the next minute of the clock. `retry-after` and `x-ratelimit-*` are missing. Output:
#   status: 429
#   retry-after:
#   llm_provider-retry-after: 60
#   x-ratelimit-remaining-requests of an accepted answer: 1
#   of a refusal:
source "$(dirname "$0")/common.bash"
pip_install 'litellm[proxy]==1.108.7'
cat > config.yaml <<'YAML'
model_list:
- model_name: one
  litellm_params: { model: openai/one, api_key: none, mock_response: ok, rpm: 2 }
router_settings: { routing_strategy: usage-based-routing-v2, enable_pre_call_checks: true, num_retries: 0 }
YAML
export LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true PATH="$PWD/env/bin:$PATH"
serve env/bin/litellm --host 127.0.0.1 --port "$port" --config config.yaml --telemetry False
path=/v1/chat/completions
ask() { call --header 'content-type: application/json' --data '{"model":"one","messages":[{"role":"user","content":"a"}]}'; }
# All calls in one minute of the clock.
while (($(date +%-S) > 40)); do sleep 1; done
accepted=$(ask)
[[ $(status <<< "$accepted") == 200 ]]
# It counts a call a little after its answer.
sleep 1
ask >/dev/null
sleep 1
refusal=$(ask)
expect status "$(status <<< "$refusal")" 429
expect retry-after "$(field retry-after <<< "$refusal")" ''
expect llm_provider-retry-after "$(field llm_provider-retry-after <<< "$refusal")" 60
expect 'x-ratelimit-remaining-requests of an accepted answer' "$(field x-ratelimit-remaining-requests <<< "$accepted")" 1
expect 'of a refusal' "$(field x-ratelimit-remaining-requests <<< "$refusal")" ''
