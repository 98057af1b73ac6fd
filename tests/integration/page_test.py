#!/usr/bin/python3
"""The live page: its files, as a server sends them; and the page in headless Chromium, with a real job.
STARLING_PAGE_MINUTES=10 also looks for growth, and STARLING_PAGE_PICTURES=DIR keeps screenshots."""

import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from harness import DEADLINE_S, StarlingTest, environment, free_ports, main, program
from observed_job import LEASE_S, TITLE, ObservedTest

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MINUTES = float(os.environ.get("STARLING_PAGE_MINUTES", 0))
PICTURES = os.environ.get("STARLING_PAGE_PICTURES")
# Without these, Chromium looks for its maker's hosts.
ARGUMENTS = ("--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
             "--disable-component-update --disable-sync --disable-default-apps --js-flags=--expose-gc").split()


class Files(StarlingTest):
    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def test_page_and_all_that_it_loads(self):
        token = self.file("token", "0123456789abcdef")
        os.chmod(token, 0o600)
        servers, _ = self.start_ps(extra=["--http-token-file", token])
        self.url = "http://" + re.search(r"http (\S+)$", servers[0].wait_line("ready")).group(1)
        gzipped = {"Accept-Encoding": "gzip"}
        status, headers, body = self.get("/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertEqual(headers["Content-Security-Policy"], "default-src 'self'")
        for name in re.findall(r'(?:src|href)="([^"#]+)"', body.decode()):
            status, headers, body = self.get("/" + name, **gzipped)
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


@unittest.skipIf(os.environ.get("STARLING_SANITIZED"), "once is enough: without a sanitizer")
@unittest.skipUnless(webdriver and CHROMIUM and DRIVER, "needs chromium, chromedriver and python3-selenium")
class Page(ObservedTest):
    def open_page(self, width=1400):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        # Chromium's processes may still write there when the browser has quit.
        profile = tempfile.TemporaryDirectory(prefix="starling-page-", ignore_cleanup_errors=True)
        self.addCleanup(profile.cleanup)
        for argument in [*ARGUMENTS, f"--user-data-dir={profile.name}", f"--window-size={width},1000"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.browser = webdriver.Chrome(options=options, service=Service(DRIVER, port=free_ports(1)[0]))
        self.addCleanup(self.browser.quit)
        self.browser.get(self.url + "/")
        self.wait_for(lambda: self.texts("#job") == ["● running"])

    def texts(self, selector):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector)

    def server(self, name):
        """The text of a column of the map."""
        return next((text for text in self.texts(".server") if text.startswith(name)), "")

    def cell(self, shard):
        return self.texts(f'[data-shard="{shard}"]')[0]

    def worker(self, name):
        return next((text for text in self.texts("#workers tbody tr") if text.startswith(name + "\t")), "")

    def picture(self):
        """The chart of keys/s as a PNG; None: nothing is drawn."""
        return self.browser.execute_script("""
            const chart = [...document.querySelectorAll(".chart")].find((c) => c.innerText.startsWith("keys/s"));
            const canvas = chart.querySelector("canvas"), blank = document.createElement("canvas");
            [blank.width, blank.height] = [canvas.width, canvas.height];
            return canvas.toDataURL() === blank.toDataURL() ? null : canvas.toDataURL();""")

    def check_logs(self):
        """No message on the console, and no request to another host."""
        self.assertEqual(self.browser.get_log("browser"), [])
        for entry in self.browser.get_log("performance"):
            if '"Network.requestWillBeSent"' in entry["message"]:
                url = entry["message"].split('"url":"', 1)[1].split('"', 1)[0]
                self.assertTrue(url.startswith((self.url, "chrome://", "data:")), url)

    def keep_picture(self, name):
        if PICTURES:
            self.browser.save_screenshot(os.path.join(PICTURES, name + ".png"))

    def press(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    def test_job(self):
        self.start_job()
        self.open_page()
        self.see_cells_and_numbers()
        self.see_training()
        self.see_charts()
        self.see_events()
        self.save()
        self.use_the_keyboard()
        self.see_narrow()
        if MINUTES:
            self.see_no_growth()
        self.see_straggler()
        self.check_logs()
        self.see_killed_server()
        self.check_logs()

    def see_cells_and_numbers(self):
        self.wait_for(lambda: len(self.texts(".cell")) == 4 and len(self.texts("#workers tbody tr")) == 8)
        for name in ("ps/0", "ps/1"):
            self.wait_for(lambda name=name: "● serving" in self.server(name))
        self.wait_for(lambda: "● backup ps/1" in self.cell(0) and "● backup ps/0" in self.cell(3))
        seen = {"–"}
        self.wait_for(lambda: seen.update(self.texts('[data-series="keys_s"] .tile-value')) or len(seen) > 2)  # they move
        self.wait_for(lambda: self.browser.execute_script(
            "return document.querySelector('[data-series=keys_s] .spark-line').getTotalLength()") > 0)
        self.wait_for(lambda: self.texts("#tables tbody tr"))
        self.wait_for(lambda: self.texts("#keys tbody tr"))
        self.wait_for(lambda: self.texts("#events tbody tr"))
        self.wait_for(lambda: " ago" in self.texts("#checkpoint")[0])

    def see_training(self):
        """Title, mode and size of the job; what the workers say of their training."""
        self.assertEqual(self.texts("#title"), [TITLE])
        self.assertIn(TITLE, self.browser.title)
        self.wait_for(lambda: self.texts("#facts")[0].startswith("ssp:2 · 2 servers · 8 workers · up "))
        self.wait_for(lambda: re.fullmatch(r"[\d.]+ of 1000000", self.texts('[data-figure="epoch"] .tile-value')[0]))
        for tile in ('[data-series="loss"]', '[data-series="samples_s"]', '[data-figure="eta"]', '[data-figure="learning_rate"]'):
            self.wait_for(lambda tile=tile: self.texts(tile + " .tile-value")[0] != "–")
        self.wait_for(lambda: "loss" in self.texts(".chart:not([hidden]) figcaption span"))

    def see_events(self):
        """Debug events only if asked for, and those that match the filter."""
        def levels():
            return {row.split("\t")[1] for row in self.texts("#events tbody tr")}
        self.wait_for(lambda: "info" in levels())
        self.assertNotIn("debug", levels())
        self.browser.find_element(By.ID, "events-debug").click()
        self.wait_for(lambda: "debug" in levels())
        self.browser.find_element(By.ID, "events-filter").send_keys("has the backups")
        self.wait_for(lambda: all("has the backups" in row for row in self.texts("#events tbody tr")))
        self.assertTrue(self.texts("#events tbody tr"))

    def save(self):
        """The file that Save writes is for starling-top."""
        folder = tempfile.TemporaryDirectory(prefix="starling-page-")
        self.addCleanup(folder.cleanup)
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder.name})
        self.browser.find_element(By.ID, "save").click()
        path = os.path.join(folder.name, "starling-clicks-of-May.json")
        self.wait_for(lambda: os.path.exists(path))
        result = subprocess.run([program("starling-top"), "--history", path], env=environment({}), capture_output=True,
                                text=True, check=True, timeout=DEADLINE_S)
        self.assertIn(f"{TITLE}  job running", result.stdout)
        self.assertIn("worker/7 ", result.stdout)
        with open(path, encoding="utf-8") as file:
            self.assertTrue(any(json.load(file)["history"]["series"]["loss"]))

    def see_charts(self):
        self.wait_for(lambda: len(self.texts(".chart canvas")) >= 5)
        before = self.wait_for(self.picture)
        self.browser.find_element(By.CSS_SELECTOR, '[data-shard="2"]').click()
        self.wait_for(lambda: self.texts("#history-title") == ["Shard 2"])
        self.wait_for(lambda: self.picture() not in (None, before))
        self.wait_for(lambda: "holds the backup of shard 2" in self.server("ps/0"))
        self.browser.find_element(By.CSS_SELECTOR, "#tables .link").click()
        self.wait_for(lambda: self.texts("#history-title")[0].startswith("Table "))

    def use_the_keyboard(self):
        self.browser.find_element(By.TAG_NAME, "body").send_keys("m")
        self.press(Keys.HOME)
        self.press(Keys.ARROW_RIGHT)
        self.press(Keys.ARROW_DOWN)
        self.press(Keys.ENTER)
        self.wait_for(lambda: self.texts("#history-title") == ["Shard 3"])
        self.press("?")
        self.wait_for(lambda: self.texts("#help[open] h2"))
        self.press(Keys.ESCAPE)
        self.wait_for(lambda: not self.texts("#help[open] h2"))
        self.press("j")
        self.wait_for(lambda: self.texts("#history-title") == ["Job"])

    def see_narrow(self):
        """At 400 points nothing makes the page wider than the window."""
        def metrics(width):
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        metrics(400)
        self.wait_for(lambda: self.browser.execute_script("return [innerWidth, document.documentElement.scrollWidth <= innerWidth]") == [400, True])
        metrics(1400)

    def see_straggler(self):
        self.stop_worker(3)
        self.wait_for(lambda: "▲ straggler" in self.worker("worker/3"), LEASE_S)
        self.wait_for(lambda: "worker/3 holds up the others" in self.texts("#trouble")[0], LEASE_S)
        self.wait_for(lambda: self.texts("#workers tbody tr")[0].startswith("worker/3\t"), LEASE_S)
        self.keep_picture("stopped_worker")
        self.continue_worker(3)
        self.wait_for(lambda: "● running" in self.worker("worker/3"))

    def see_killed_server(self):
        """Disconnected at once, and served by the backup only after the lease."""
        killed = time.monotonic()
        self.kill_server(1)
        column = self.wait_for(lambda: [text for text in self.texts(".server") if text.startswith("ps/1") and "✕ disconnected" in text])
        shown = time.monotonic()
        self.assertIn("shard 2", column[0])
        self.keep_picture("killed_server")
        self.wait_for(lambda: "shard 2" in self.server("ps/0") and "shard 3" in self.server("ps/0"))
        print(f"disconnected after {shown - killed:.1f} s, served by the backup after {time.monotonic() - killed:.1f} s", flush=True)
        self.wait_for(lambda: "▲ no backup" in self.cell(0))
        self.assertEqual(self.texts("#job"), ["▲ degraded"])
        self.wait_for(lambda: self.texts("#trouble") == ["ps/1 is expired, shards 0 to 3 are without a backup"])
        self.keep_picture("served_by_backup")

    def see_no_growth(self):
        """Elements, listeners and memory after a minute, and in the end."""
        def measure():
            self.browser.execute_script("gc()")
            self.browser.execute_cdp_cmd("Performance.enable", {})
            metrics = self.browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            return {m["name"]: m["value"] for m in metrics}
        time.sleep(60)
        first = measure()
        time.sleep(60 * MINUTES)
        last = measure()
        print({name: (first[name], last[name]) for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")})
        self.assertLessEqual(last["Nodes"], first["Nodes"] * 1.1)
        self.assertLessEqual(last["JSEventListeners"], first["JSEventListeners"] * 1.1)
        self.assertLess(last["JSHeapUsedSize"], first["JSHeapUsedSize"] * 1.25 + (2 << 20))


if __name__ == "__main__":
    main()
