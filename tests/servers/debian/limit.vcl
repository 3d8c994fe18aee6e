# vsthrottle in front of a backend.
vcl 4.1;
import vsthrottle;
backend behind {
    .host = "127.0.0.1";
    .port = "${BACKEND}";
}
sub vcl_recv {
    if (vsthrottle.is_denied("one", 20, 10s)) {
        ${REFUSE}
    }
    return (pass);
}
sub vcl_deliver {
    ${DELIVER}
}
