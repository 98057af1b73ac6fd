#!/usr/bin/env python3
"""A program of Mooncake's C functions in two processes: by address, and by name in a metadata store."""

import harness
import transfer_test


class MooncakeTest(harness.StarlingTest):
    def check(self, metadata, names):
        target = self.start("mooncake_peer", "target", metadata, names[0], commands=True)
        _, name, address = target.wait_line("serves ").split()
        self.run_to_end("mooncake_peer", "initiator", metadata, names[1], name if metadata == "P2PHANDSHAKE" else names[0], address)
        target.write("\n")
        self.assertEqual(target.wait(), 0, target.output)
        self.assertRegex(target.output, "(?s)agent=first.*agent=last")

    def names(self):
        return [f"127.0.0.1:{port}" for port in harness.free_ports(2)]


class Address(MooncakeTest):
    def test_all_calls(self):
        self.check("P2PHANDSHAKE", ("127.0.0.1", "127.0.0.1"))

    def test_refused(self):
        output = self.run_to_end("mooncake_peer", "target", "P2PHANDSHAKE", "192.0.2.1", status=1)
        self.assertRegex(output, "(?s)createTransferEngine: 192.0.2.1: .*STARLING_SECRET_FILE")


class Store(MooncakeTest):
    def test_http(self):
        self.check(transfer_test.MetadataServer(self).url, self.names())

    def test_etcd(self):
        self.check(transfer_test.EtcdServer(self).url, self.names())


if __name__ == "__main__":
    harness.main()
