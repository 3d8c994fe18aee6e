#!/usr/bin/env bash
# sglang-router 0.3.2: `--rate-limit-tokens-per-second`.
#
# Guess: 10 tokens a second and a bucket of 5 let about 45 calls through in 4 s, whatever calls take: a rate.
# Seen: hundreds, by four callers in turn. The bucket gets its token back when the answer ends, so short calls are not limited: in
# effect it bounds the calls at once, as `--max-concurrent-requests` does. Output (the number varies):
#   status of a call: 200
#   accepted: 400
#   more than 100 are accepted in 4 s: yes
source "$(dirname "$0")/common.bash"
pip_install sglang-router==0.3.2
# A worker that answers all with a short text.
cat > worker.py <<'PY'
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Worker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    do_POST = do_GET

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["WORKER"])), Worker)
server.serve_forever()
PY
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
WORKER=$(free) && export WORKER
timeout 180 env/bin/python worker.py &
worker=$!
trap 'kill $worker 2>/dev/null || true; finish' EXIT
serve env/bin/python -m sglang_router.launch_router --host 127.0.0.1 --port "$port" --worker-urls "http://127.0.0.1:$WORKER" \
    --prometheus-port "$(free)" --policy round_robin --disable-retries --disable-circuit-breaker \
    --max-concurrent-requests 5 --rate-limit-tokens-per-second 10 --queue-size 0
path=/generate
ask() { call --header 'content-type: application/json' --data '{"text":"a"}'; }
# It knows its worker after a while.
for _ in $(seq 100); do [[ $(ask | status) == 503 ]] || break; sleep 0.2; done
expect 'status of a call' "$(ask | status)" 200
sleep 2
accepted=$(python3 - <<'PY'
import http.client
import os
import threading
import time

end, accepted = time.monotonic() + 4, [0] * 4


def calls(index):
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]), timeout=10)
    while time.monotonic() < end and sum(accepted) < 400:
        connection.request("POST", "/generate", '{"text":"a"}', {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        accepted[index] += response.status == 200


threads = [threading.Thread(target=calls, args=(index,)) for index in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(accepted))
PY
)
echo "accepted: $accepted"
expect 'more than 100 are accepted in 4 s' "$( ((accepted > 100)) && echo yes || echo no)" yes
