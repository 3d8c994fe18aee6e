#!/usr/bin/env bash
# Varnish 7.1.1-2+deb12u1 with varnish-modules 0.20.0-2 (Debian 12): what vsthrottle gives a client that is a little too fast.
#
# Guess: with `is_denied(key, 20, 10s)`, a bucket of 20 that is used up, a client of 2.05 calls a second has two a second accepted.
# Seen: one a second. The time since the last permit is cut to whole permits, and the rest is lost: a call every 0.49 s finds no
# permit, the next one finds one of nearly two. One of 1.95 a second has all accepted. Output:
#   1.95 a second for 20 s: 39 of 39
#   2.05 a second for 20 s: 20 of 41
source "$(dirname "$0")/common.bash"
for package in varnish=7.1.1-2+deb12u1 libvarnishapi3=7.1.1-2+deb12u1 varnish-modules=0.20.0-2; do
    apt-get download -qq "$package" 2>/dev/null || { echo "NOT RUN: $package of Debian 12 is not to be had"; exit; }
done
for package in ./*.deb; do dpkg -x "$package" root; done
library=$(dirname "$(find root -name 'libvarnishapi.so*' | head -1)")
export LD_LIBRARY_PATH=$PWD/$library:$PWD/$library/varnish
cat > limit.vcl <<'VCL'
vcl 4.1;
import vsthrottle;
backend none none;
sub vcl_recv {
    if (vsthrottle.is_denied("one", 20, 10s)) { return (synth(429)); }
    return (synth(200));
}
VCL
serve root/usr/sbin/varnishd -j none -F -n "$PWD/work" -a "127.0.0.1:$port" -f "$PWD/limit.vcl" -s malloc,16M \
    -p "vmod_path=$PWD/$library/varnish/vmods" -p "vcl_path=$PWD/root/etc/varnish:$PWD/root/usr/share/varnish/vcl"
cat > client.py <<'PY'
import http.client, os, sys, time

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["PORT"]))


def is_accepted():
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


rate, calls = float(sys.argv[1]), int(sys.argv[2])
while is_accepted():
    pass
start, accepted = time.monotonic(), 0
for call in range(1, calls + 1):
    time.sleep(max(0, start + call / rate - time.monotonic()))
    accepted += is_accepted()
print(f"{accepted} of {calls}")
PY
expect '1.95 a second for 20 s' "$(python3 client.py 1.95 39)" '@(38|39) of 39'
expect '2.05 a second for 20 s' "$(python3 client.py 2.05 41)" '@(19|2[012]) of 41'
