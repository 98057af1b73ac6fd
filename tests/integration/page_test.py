#!/usr/bin/python3
"""The files of the live page, as a server sends them."""

import gzip
import os
import re
import urllib.error
import urllib.request

from harness import StarlingTest, main


class Files(StarlingTest):
    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def test_page_and_all_that_it_loads(self):
        token = self.file("token", "0123456789abcdef")
        os.chmod(token, 0o600)
        servers, _ = self.start_ps(extra=["--http-token-file", token])
        self.url = "http://" + re.search(r"http (\S+)$", servers[0].wait_line("ready")).group(1)
        status, headers, body = self.get("/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertEqual(headers["Content-Security-Policy"], "default-src 'self'")
        for name in re.findall(r'(?:src|href)="([^"#]+)"', gzip.decompress(body).decode()):
            status, headers, body = self.get("/" + name)
            self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"), name)
            self.assertGreater(len(gzip.decompress(body)), 100)
            # A browser that has the file does not load it again.
            etag = headers["ETag"]
            for kept in (etag, f'"other", {etag}'):
                status, _, body = self.get("/" + name, **{"If-None-Match": kept})
                self.assertEqual((status, body), (304, b""))
            self.assertEqual(self.get("/" + name, **{"If-None-Match": '"other"'})[0], 200)
        # The files show nothing of the job; what does needs the token.
        self.assertEqual(self.get("/api/process")[0], 401)
        self.assertEqual(self.get("/api/process", Authorization="Bearer 0123456789abcdef")[0], 200)


if __name__ == "__main__":
    main()
