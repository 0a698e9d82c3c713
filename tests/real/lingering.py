#!/usr/bin/env python3
"""Passes requests on to a server on loopback, and leaves the connection open after the end of a reply until the client closes it.

    lingering.py PORT SERVER_PORT

Prints the time of each line of a reply in milliseconds, before it passes the line on.
"""

import http.client
import http.server
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_error(204)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        server = http.client.HTTPConnection("127.0.0.1", int(sys.argv[2]))
        server.request("POST", self.path, body, self.headers)
        reply = server.getresponse()
        self.send_response(reply.status)
        self.send_header("content-type", reply.headers["content-type"])
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in reply:
            print(time.time_ns() // 1_000_000, flush=True)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        # The last chunk of the encoding is never sent.
        self.rfile.read(1)
        self.close_connection = True


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
