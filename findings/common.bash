# What each finding needs: a temp folder that goes away, a free port, a server that ends with the script.
# In twenty minutes it is over, whatever hangs.
[[ -n ${FINDING_IS_BOUNDED:-} ]] || FINDING_IS_BOUNDED=1 exec timeout 1200 "$0"
set -euo pipefail
shopt -s extglob
folder=$(mktemp -d)
server=
finish() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    [[ -z $server ]] || wait "$server" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
cd "$folder"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export PORT=$port

npm_install() { echo '{"private":true,"type":"module"}' > package.json && npm install --no-package-lock --no-audit --no-fund --loglevel=error "$@" >/dev/null; }
pip_install() { python3 -m venv env && env/bin/pip install --quiet --disable-pip-version-check "$@"; }

# Starts a command that serves $PORT, for three minutes at most.
serve() {
    timeout 180 "$@" > log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat log
    echo "the server did not start"
    exit 1
}

# The head and the body of an answer, without carriage returns.
call() { curl --silent --include --max-time 10 "$@" "http://127.0.0.1:$port${path:-/}" | tr -d '\r'; }
# A field of such a text: all its values, in one line.
field() { sed -n '/^$/q; s/^'"$1"': *//Ip' | paste -sd' '; }
status() { head -1 | cut -d' ' -f2; }

# Says what was seen, and fails if it is not what this file says.
expect() {
    echo "$1: $2"
    [[ $2 == $3 ]] || { echo "CHANGED: $1 was $3"; exit 1; }
}
