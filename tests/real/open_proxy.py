#!/usr/bin/env python3
"""Passes requests on to a server and never ends an answer: the connection stays open after the last byte, as behind some
gateways. Ends when it is killed.

    open_proxy.py PORT UPSTREAM_PORT
"""

import http.client
import http.server
import sys
import threading

PORT, UPSTREAM = int(sys.argv[1]), int(sys.argv[2])


class Handler(http.server.BaseHTTPRequestHandler):
    def relay(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", UPSTREAM)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        upstream.request(self.command, self.path, body, kept)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        self.send_header("content-type", answer.getheader("content-type", ""))
        is_stream = "event-stream" in answer.getheader("content-type", "")
        if not is_stream:
            text = answer.read()
            self.send_header("content-length", str(len(text)))
        self.end_headers()
        if not is_stream:
            self.wfile.write(text)
            return
        # Neither a length nor chunks: only the end of the connection would end it.
        while block := answer.read1(4096):
            self.wfile.write(block)
        self.wfile.flush()
        threading.Event().wait()

    do_GET = do_POST = relay


http.server.ThreadingHTTPServer.daemon_threads = True
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
