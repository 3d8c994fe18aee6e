"""gRPC's own bound of calls at once: `maximum_concurrent_rpcs`. A call takes 0.2 s; messages are bytes."""

import time
from concurrent import futures

import grpc

from settings import COUNT, HOST, PORT


def answer(request, context):
    time.sleep(0.2)
    return b""


method = grpc.unary_unary_rpc_method_handler(answer)
handlers = grpc.method_handlers_generic_handler("test.Greeter", {"Greet": method})
server = grpc.server(futures.ThreadPoolExecutor(32), maximum_concurrent_rpcs=COUNT)
server.add_generic_rpc_handlers([handlers])
server.add_insecure_port(f"{HOST}:{PORT}")
server.start()
server.wait_for_termination()
