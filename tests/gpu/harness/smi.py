"""What nvidia-smi says of the devices, in the names and units of `gputrace devices --json` and `gputrace monitor`."""

import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

# nvidia-smi's names of the reasons for lowered clocks, and ours.
REASONS = {
    "gpu_idle": "idle", "applications_clocks_setting": "clocks set by a user", "sw_power_cap": "power cap", "hw_slowdown": "hardware slowdown",
    "sync_boost": "sync boost group", "sw_thermal_slowdown": "thermal, by software", "hw_thermal_slowdown": "thermal, by hardware",
    "hw_power_brake_slowdown": "external power brake", "display_clocks_setting": "display",
}


@dataclass
class Reading:
    """One answer of `nvidia-smi -q -x`; wall-clock times of its begin and end."""

    begin: float
    end: float
    gpus: list


def read(limit_s=30):
    begin = time.time()
    done = subprocess.run(["nvidia-smi", "-q", "-x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=limit_s, check=True)
    end = time.time()
    root = ElementTree.fromstring(done.stdout)
    return Reading(begin, end, [Gpu(root, node) for node in root.findall("gpu")])


class Gpu:
    def __init__(self, root, node):
        self.root, self.node = root, node

    def text(self, *paths):
        """The first of these elements that has a value; names changed between drivers. None for "N/A"."""
        for path in paths:
            found = self.root.findtext(path[1:]) if path.startswith("/") else self.node.findtext(path)
            if found is not None and found.strip() and not re.match(r"(\[?N/A|\[?Not |Unknown|Requested)", found.strip()):
                return found.strip()
        return None

    def number(self, *paths):
        """The number that the text begins with: "700.00 W", "16x"."""
        text = self.text(*paths)
        found = re.match(r"-?\d+(\.\d+)?", text) if text else None
        return float(found[0]) if found else None

    def is_on(self, path):
        return {"Enabled": True, "Disabled": False}.get(self.text(path))

    @property
    def uuid(self):
        return self.text("uuid")

    @property
    def is_divided(self):
        return self.is_on("mig_mode/current_mig") is True

    def static(self):
        """{path in `devices --json`: value}; memory in whole MiB."""
        bus = self.text("pci/pci_bus_id")
        return {
            "name": self.text("product_name"),
            "uuid": self.uuid,
            "pci_bus_id": bus and f"{int(bus.split(':')[0], 16):04x}:{bus.split(':', 1)[1]}".lower(),
            "architecture": self.text("product_architecture"),
            "driver_version": self.text("/driver_version"),
            "cuda_version": self.text("/cuda_version"),
            "vram_total": self.number("fb_memory_usage/total"),
            "link.max_generation": self.number("pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
            "link.max_width": self.number("pci/pci_gpu_link_info/link_widths/max_link_width"),
            "max_graphics_mhz": self.number("max_clocks/graphics_clock"),
            "max_sm_mhz": self.number("max_clocks/sm_clock"),
            "max_memory_mhz": self.number("max_clocks/mem_clock"),
            "power_limit_watts": self.number("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "gpu_power_readings/enforced_power_limit"),
            "power_limit_max_watts": self.number("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
            "ecc": self.is_on("ecc_mode/current_ecc"),
            "mig": self.is_on("mig_mode/current_mig"),
        }

    def dynamic(self):
        """{path in a sample: value}; memory in whole MiB."""
        return {
            "memory.used": self.number("fb_memory_usage/used"),
            "memory.free": self.number("fb_memory_usage/free"),
            "memory.reserved": self.number("fb_memory_usage/reserved"),
            "utilization.gpu_percent": self.number("utilization/gpu_util"),
            "utilization.memory_percent": self.number("utilization/memory_util"),
            "utilization.encoder_percent": self.number("utilization/encoder_util"),
            "utilization.decoder_percent": self.number("utilization/decoder_util"),
            "thermal.temperature_celsius": self.number("temperature/gpu_temp"),
            "thermal.memory_temperature_celsius": self.number("temperature/memory_temp"),
            "thermal.temperature_threshold_shutdown": self.number("temperature/gpu_temp_max_threshold"),
            "thermal.temperature_threshold_slowdown": self.number("temperature/gpu_temp_slow_threshold"),
            "thermal.fan_speed_percent": self.number("fan_speed"),
            "power.power_draw_watts": self.number("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw"),
            "power.power_limit_watts": self.number("gpu_power_readings/current_power_limit", "gpu_power_readings/enforced_power_limit", "power_readings/enforced_power_limit"),
            "power.power_state": self.state(),
            "clocks.graphics_mhz": self.number("clocks/graphics_clock"),
            "clocks.sm_mhz": self.number("clocks/sm_clock"),
            "clocks.memory_mhz": self.number("clocks/mem_clock"),
            "clocks.video_mhz": self.number("clocks/video_clock"),
            "pcie.link_gen": self.number("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
            "pcie.link_width": self.number("pci/pci_gpu_link_info/link_widths/current_link_width"),
            "pcie.replays": self.number("pci/replay_counter"),
            "errors.remapped_rows_corrected": self.number("remapped_rows/remapped_row_corr"),
            "errors.remapped_rows_uncorrected": self.number("remapped_rows/remapped_row_unc"),
        }

    def state(self):
        text = self.text("performance_state")
        return float(text[1:]) if text else None

    def reasons(self):
        """Reasons for lowered clocks, in our words; None where they are not reported."""
        for group, prefix in (("clocks_event_reasons", "clocks_event_reason_"), ("clocks_throttle_reasons", "clocks_throttle_reason_")):
            found = self.node.find(group)
            if found is not None and len(found):
                active = [child.tag.removeprefix(prefix) for child in found if (child.text or "").strip() == "Active"]
                return {REASONS[name] for name in active if name in REASONS}
        return None

    def processes(self):
        """{pid: MiB, or None where the memory is not told}."""
        found = {}
        for node in self.node.findall("processes/process_info"):
            memory = re.match(r"\d+", node.findtext("used_memory") or "")
            found[int(node.findtext("pid"))] = float(memory[0]) if memory else None
        return found


def topology():
    """{(index, index): the words of `nvidia-smi topo -m`}, the lower index first."""
    done = subprocess.run(["nvidia-smi", "topo", "-m"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=30, check=False)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).split() for line in done.stdout.decode(errors="replace").splitlines()]
    rows = {int(line[0][3:]): line[1:] for line in lines if len(line) > 1 and re.fullmatch(r"GPU\d+", line[0]) and "X" in line}
    return {(one, other): words[other] for one, words in rows.items() for other in rows if other > one and other < len(words)}
