#!/usr/bin/env python3
"""stranger_test.py over RDMA, in a virtual machine that has a device."""

import os

import harness
import stranger_test

ADDRESS = os.environ["RDMA_IP"].split("/")[0]


class Rdma(stranger_test.StrangerTest):
    def test_rdma(self):
        port = harness.free_ports(1)[0]
        self.meet(f"rdma://{ADDRESS}:{port}", f"rdma://{ADDRESS}:{port}")


if __name__ == "__main__":
    harness.main()
