//! THE table of metrics. The CSV headers, the axes, the glossary and the README's table are made from it and from
//! nothing else: a new metric is one row here and the probe that fills it.

use serde::{Deserialize, Serialize};

/// Whether a metric is a level now, or a total that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level at the moment of the sample.
    Gauge,
    /// A level that is dear to look at: it is there in samples taken at marks, and empty in the others. It has no
    /// peaks.
    MarkGauge,
    /// The largest level since start, as the kernel or a sum of its answers has it. It has no peaks: it is one.
    HighWater,
    /// A total since start; never falls.
    Counter,
}

impl Kind {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::MarkGauge => "gauge, at marks",
            Kind::HighWater => "high-water mark",
            Kind::Counter => "counter",
        }
    }
}

/// The unit of a metric. Values are exact integers of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Nanoseconds,
    Count,
}

impl Unit {
    /// The word that files and people have for it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::Count => "count",
        }
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Definition {
    /// The column's name, with its unit: part of the contract, never renamed.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// What the value is, in one sentence, with its source.
    pub meaning: &'static str,
    /// What is counted in it that a reader might not expect.
    pub includes: &'static str,
    /// Which other columns count some of the same bytes.
    pub overlaps: &'static str,
}

macro_rules! metrics {
    ($($variant:ident $kind:ident $unit:ident $name:literal { $meaning:literal, $includes:literal, $overlaps:literal })*) => {
        /// One metric: an index into [`METRICS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Metric { $($variant),* }

        /// Every metric, in the order of the columns.
        pub const ALL: &[Metric] = &[$(Metric::$variant),*];

        /// Every metric's definition, in the order of the columns.
        pub const METRICS: &[Definition] = &[$(Definition {
            name: $name, kind: Kind::$kind, unit: Unit::$unit,
            meaning: $meaning, includes: $includes, overlaps: $overlaps,
        }),*];
    };
}

metrics! {
    Artifacts Gauge Count "artifacts" {
        "Artifacts in the set now.", "", "" }
    PayloadBytes Gauge Bytes "payload_bytes" {
        "Tensor data of the artifact set, from the files' own headers.",
        "", "mapped_payload_bytes, resident_payload_bytes" }
    MappedBytes Gauge Bytes "mapped_bytes" {
        "Mapped extent: bytes of the artifacts covered by at least one mapping of the tree (/proc/PID/maps).",
        "headers, padding; pages that are not in memory", "mapped_payload_bytes" }
    MappedPayloadBytes Gauge Bytes "mapped_payload_bytes" {
        "The part of the mapped extent that is payload.",
        "pages that are not in memory", "mapped_bytes" }
    ResidentPayloadBytes Gauge Bytes "resident_payload_bytes" {
        "Payload bytes whose pages are in host memory, in mincore's meaning (mincore(2), cachestat(2)).",
        "page cache that no process of the tree brought in or maps", "rss_file_bytes, where mapped; rss_shmem_bytes on tmpfs" }
    NonresidentPayloadBytes Gauge Bytes "nonresident_payload_bytes" {
        "payload_bytes − resident_payload_bytes.", "", "" }
    ResidentStaleNs Gauge Nanoseconds "resident_stale_ns" {
        "Age of the oldest part of resident_payload_bytes when the sample was taken.", "", "" }
    Processes Gauge Count "processes" {
        "Live processes of the tree.", "", "" }
    Threads Gauge Count "threads" {
        "Threads of the live processes (stat, field num_threads).", "", "" }
    RssBytes Gauge Bytes "rss_bytes" {
        "Resident set, summed over processes (status, VmRSS).",
        "shared pages once a process", "rss_anon_bytes, rss_file_bytes, rss_shmem_bytes, which add up to it" }
    RssAnonBytes Gauge Bytes "rss_anon_bytes" {
        "Anonymous resident set, summed over processes (status, RssAnon).",
        "copy-on-write pages shared after fork, once a process; written pages of private file mappings", "rss_bytes" }
    RssFileBytes Gauge Bytes "rss_file_bytes" {
        "File-backed resident set, summed over processes (status, RssFile).",
        "shared libraries and mapped artifacts, once a process", "rss_bytes, resident_payload_bytes" }
    RssShmemBytes Gauge Bytes "rss_shmem_bytes" {
        "Shared-memory resident set, summed over processes (status, RssShmem).",
        "tmpfs and memfd pages, once a process", "rss_bytes" }
    SwapBytes Gauge Bytes "swap_bytes" {
        "Swapped-out anonymous memory, summed over processes (status, VmSwap).", "", "" }
    PageTableBytes Gauge Bytes "page_table_bytes" {
        "Page tables, summed over processes (status, VmPTE).", "", "" }
    DeviceUsedBytes Gauge Bytes "device_used_bytes" {
        "Memory in use on the devices that the launch may use (NVML; amdgpu's mem_info_vram_used; with --cuda-memory CUDA's cuMemGetInfo).", "other users of the devices; with --cuda-memory stagemark's own context", "device_launch_bytes; of unified-memory boards, host memory" }
    DeviceLaunchBytes Gauge Bytes "device_launch_bytes" {
        "This launch's share of device memory: by the driver's list of processes, the processes' own DRM clients or KFD; where none of them can be told, device_rise_bytes (`launch_basis` in run.json says which).", "where it is the rise, other users of the devices", "device_used_bytes" }
    MinorFaults Counter Count "minor_faults" {
        "Page faults served without I/O (stat, minflt and cminflt).",
        "waited-for children", "" }
    MajorFaults Counter Count "major_faults" {
        "Page faults that waited for I/O (stat, majflt and cmajflt). One may bring in megabytes of read-ahead.",
        "waited-for children", "" }
    RcharBytes Counter Bytes "rchar_bytes" {
        "Bytes asked for by read(2) and its kin (io, rchar); mapped access never counts.",
        "page-cache hits, pipes, sockets; waited-for children", "read_bytes, where a read() reached the device" }
    ReadBytes Counter Bytes "read_bytes" {
        "Bytes fetched from the storage layer for the tree (io, read_bytes), read-ahead included.",
        "waited-for children", "rchar_bytes" }
    WcharBytes Counter Bytes "wchar_bytes" {
        "Bytes given to write(2) and its kin (io, wchar).", "pipes, sockets, terminals; waited-for children", "write_bytes" }
    WriteBytes Counter Bytes "write_bytes" {
        "Bytes that pages dirtied by the tree will send to the storage layer (io, write_bytes).", "waited-for children", "wchar_bytes" }
    ReadSyscalls Counter Count "read_syscalls" {
        "Calls of read(2) and its kin (io, syscr).", "waited-for children", "" }
    CpuUserNs Counter Nanoseconds "cpu_user_ns" {
        "CPU time in user mode (stat, utime and cutime; resolution one clock tick).", "waited-for children", "" }
    CpuSystemNs Counter Nanoseconds "cpu_system_ns" {
        "CPU time in the kernel (stat, stime and cstime; resolution one clock tick).", "waited-for children", "" }
    PerfPageFaults Counter Count "perf_page_faults" {
        "Page faults of the whole tree by an inherited perf counter, which counts the dead that nobody waited for and misses faults taken inside get_user_pages.",
        "", "minor_faults + major_faults" }
    PerfTaskClockNs Counter Nanoseconds "perf_task_clock_ns" {
        "Time on a CPU of the whole tree by an inherited perf counter, the dead that nobody waited for included.",
        "", "cpu_user_ns + cpu_system_ns" }
    ResidentPayloadLowBytes Gauge Bytes "resident_payload_low_bytes" {
        "Payload bytes that the page tables of the tree's processes point at (PAGEMAP_SCAN, /proc/PID/pagemap): a lower bound of resident_payload_bytes where that is withheld. At marks; between them only where it is withheld.",
        "", "resident_payload_bytes, rss_file_bytes" }
    ResidentLowStaleNs Gauge Nanoseconds "resident_low_stale_ns" {
        "Age of the oldest part of resident_payload_low_bytes when the sample was taken.", "", "" }
    RssHighWaterLowBytes HighWater Bytes "rss_high_water_low_bytes" {
        "The resident set of the tree was at least this at some time since start: the largest VmHWM of one process image, less the counter's error, or the largest sample of the sum if that is more.",
        "", "rss_bytes" }
    RssHighWaterHighBytes HighWater Bytes "rss_high_water_high_bytes" {
        "The resident set of the tree was never more than this since start: the sum of VmHWM over every process that ever was, of the largest image where it ran several, with the counter's error. Absent once an image ended unread.",
        "processes that were never there at the same time", "rss_bytes" }
    RssSpanHighWaterLowBytes HighWater Bytes "rss_span_high_water_low_bytes" {
        "As rss_high_water_low_bytes, but since the last stage at which the marks were reset (--reset-peaks).", "", "rss_bytes" }
    RssSpanHighWaterHighBytes HighWater Bytes "rss_span_high_water_high_bytes" {
        "As rss_high_water_high_bytes, but since the last stage at which the marks were reset (--reset-peaks).",
        "processes that were never there at the same time", "rss_bytes" }
    CgroupBytes Gauge Bytes "cgroup_bytes" {
        "Memory charged to the launch's own control group (memory.current; v1: memory.usage_in_bytes).",
        "page cache first touched in the group, kernel memory", "cgroup_anon_bytes, cgroup_file_bytes" }
    CgroupAnonBytes Gauge Bytes "cgroup_anon_bytes" {
        "Anonymous memory charged to the launch's own control group (memory.stat, anon; v1: total_rss).", "", "cgroup_bytes" }
    CgroupFileBytes Gauge Bytes "cgroup_file_bytes" {
        "Page cache charged to the launch's own control group (memory.stat, file; v1: total_cache).",
        "tmpfs and shared memory", "cgroup_bytes" }
    CgroupPeakBytes HighWater Bytes "cgroup_peak_bytes" {
        "The largest memory ever charged to the launch's own control group (memory.peak; v1: memory.max_usage_in_bytes).",
        "page cache first touched in the group, kernel memory", "cgroup_bytes" }
    CgroupSpanPeakBytes HighWater Bytes "cgroup_span_peak_bytes" {
        "The largest memory charged to the launch's own control group since the last stage at which the mark was reset (--reset-peaks; memory.peak, Linux 6.12).",
        "page cache first touched in the group, kernel memory", "cgroup_bytes" }
    PssAnonBytes MarkGauge Bytes "pss_anon_bytes" {
        "Proportional anonymous memory, summed over processes: a page shared copy-on-write is divided among its sharers (smaps_rollup, Pss_Anon).", "", "rss_anon_bytes" }
    PssFileBytes MarkGauge Bytes "pss_file_bytes" {
        "Proportional file-backed memory, summed over processes (smaps_rollup, Pss_File).",
        "mapped artifacts, shared libraries", "rss_file_bytes, resident_payload_bytes" }
    PssShmemBytes MarkGauge Bytes "pss_shmem_bytes" {
        "Proportional shared memory, summed over processes (smaps_rollup, Pss_Shmem).", "", "rss_shmem_bytes" }
    LockedBytes MarkGauge Bytes "locked_bytes" {
        "Memory locked by mlock(2), proportionally, summed over processes (smaps_rollup, Locked): a subset of the resident set.", "", "rss_bytes" }
    AnonHugeBytes MarkGauge Bytes "anon_huge_bytes" {
        "Anonymous memory in transparent huge pages, summed over processes (smaps_rollup, AnonHugePages): a subset of rss_anon_bytes.", "", "rss_anon_bytes" }
    ArtifactResidentBytes MarkGauge Bytes "artifact_resident_bytes" {
        "Bytes of the artifacts whose pages are in host memory, headers and padding included, in mincore's meaning.",
        "resident_payload_bytes", "resident_payload_bytes" }
    HostAvailableBytes Gauge Bytes "host_available_bytes" {
        "MemAvailable of the host: the kernel's estimate of what a new program could take without swapping (/proc/meminfo).", "all users of the host", "" }
    HugetlbBytes Gauge Bytes "hugetlb_bytes" {
        "Huge pages of hugetlbfs, summed over processes (status, HugetlbPages); no resident set has them.",
        "shared ones once a process", "" }
    MappedOtherFileBytes MarkGauge Bytes "mapped_other_file_bytes" {
        "Bytes of files other than the artifacts that at least one mapping of the tree covers (/proc/PID/maps): the most that the tree can hold of them in memory. Of a process whose mappings could not be read in time, its file-backed resident set stands in.",
        "pages that are not in memory", "" }
    PresentOtherFileBytes MarkGauge Bytes "present_other_file_bytes" {
        "Bytes of files other than the artifacts that at least one page table of the tree points at (PAGEMAP_SCAN), each once, with the kernel's own mapped pages: what the tree's file-backed resident sets hold of them, at most, since a file that shows two names counts twice. Absent where some process's tables could not be walked in time.",
        "", "rss_file_bytes" }
    MappedShmemBytes MarkGauge Bytes "mapped_shmem_bytes" {
        "Bytes of shared memory (tmpfs, memfd, System V, shared anonymous) other than the artifacts that at least one mapping of the tree covers (/proc/PID/maps): the most that the tree can hold of it in memory through mappings. Of a process whose mappings could not be read in time, its resident shared memory stands in.",
        "pages that are not in memory", "" }
    RunWaitNs Counter Nanoseconds "run_wait_ns" {
        "Time that the tree's threads waited for a CPU while they could have run, at least: each as last read before its end (/proc/PID/task/TID/schedstat). Ten times a second and at marks.", "", "" }
    IoWaitNs Counter Nanoseconds "io_wait_ns" {
        "Time that the tree's threads waited for block I/O, at least: each as last read before its end (delay accounting; /proc/PID/task/TID/stat, delayacct_blkio_ticks). Ten times a second and at marks.", "", "" }
    PressureCpuSomeNs Counter Nanoseconds "pressure_cpu_some_ns" {
        "Time in which some task of the host waited for a CPU (/proc/pressure/cpu). Ten times a second and at marks.", "all tasks of the host", "" }
    PressureIoSomeNs Counter Nanoseconds "pressure_io_some_ns" {
        "Time in which some task of the host waited for I/O (/proc/pressure/io). Ten times a second and at marks.", "all tasks of the host", "pressure_io_full_ns" }
    PressureIoFullNs Counter Nanoseconds "pressure_io_full_ns" {
        "Time in which all tasks of the host that were not idle waited for I/O (/proc/pressure/io). Ten times a second and at marks.", "all tasks of the host", "pressure_io_some_ns" }
    PressureMemorySomeNs Counter Nanoseconds "pressure_memory_some_ns" {
        "Time in which some task of the host waited for memory (/proc/pressure/memory). Ten times a second and at marks.", "all tasks of the host", "pressure_memory_full_ns" }
    PressureMemoryFullNs Counter Nanoseconds "pressure_memory_full_ns" {
        "Time in which all tasks of the host that were not idle waited for memory (/proc/pressure/memory). Ten times a second and at marks.", "all tasks of the host", "pressure_memory_some_ns" }
    CgroupPressureCpuSomeNs Counter Nanoseconds "cgroup_pressure_cpu_some_ns" {
        "Time in which some task of the launch's control group waited for a CPU (cpu.pressure; v2 only). Ten times a second and at marks.", "other tasks of the group", "" }
    CgroupPressureIoSomeNs Counter Nanoseconds "cgroup_pressure_io_some_ns" {
        "Time in which some task of the launch's control group waited for I/O (io.pressure; v2 only). Ten times a second and at marks.", "other tasks of the group", "" }
    CgroupPressureMemorySomeNs Counter Nanoseconds "cgroup_pressure_memory_some_ns" {
        "Time in which some task of the launch's control group waited for memory (memory.pressure; v2 only). Ten times a second and at marks.", "other tasks of the group", "" }
    StorageReadBytes Counter Bytes "storage_read_bytes" {
        "Bytes read from the devices and network mounts behind the artifacts, by their own counters (/sys/dev/block/M:N/stat; /proc/self/mountstats).",
        "other users of the devices", "read_bytes" }
    StorageReads Counter Count "storage_reads" {
        "Read requests that those devices completed.", "other users of the devices", "" }
    StorageBusyNs Counter Nanoseconds "storage_busy_ns" {
        "Time in which those devices had a request in flight; summed over devices.", "other users of the devices", "" }
    DeviceRiseBytes Gauge Bytes "device_rise_bytes" {
        "How much more memory is in use on the devices than before the exec; on each no less than 0.", "other users of the devices", "device_used_bytes" }
    DeviceUnexplainedBytes Gauge Bytes "device_unexplained_bytes" {
        "The part of device_rise_bytes for which no process of the launch is named.", "other users of the devices", "device_used_bytes" }
    DevicePeakLowBytes HighWater Bytes "device_peak_low_bytes" {
        "The most device memory that one process of the launch ever had on one device (NVML accounting mode, where that is on).", "", "device_launch_bytes" }
    DevicePeakHighBytes HighWater Bytes "device_peak_high_bytes" {
        "The same, summed over processes and devices, as if each had had its most at one time.", "", "device_launch_bytes" }
    DeviceStaleNs Gauge Nanoseconds "device_stale_ns" {
        "Age of the oldest part of the devices' figures when the sample was taken.", "", "" }
}

/// How many metrics there are.
pub const COUNT: usize = ALL.len();

impl Metric {
    /// The metric's row.
    pub fn definition(self) -> &'static Definition {
        &METRICS[self as usize]
    }

    /// The column's name.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The metric whose column has this name.
    pub fn by_name(name: &str) -> Option<Metric> {
        ALL.iter().copied().find(|metric| metric.name() == name)
    }

    /// Whether it is a gauge.
    pub fn is_gauge(self) -> bool {
        self.definition().kind == Kind::Gauge
    }

    /// All gauges, in column order.
    pub fn gauges() -> impl Iterator<Item = Metric> {
        ALL.iter().copied().filter(|metric| metric.is_gauge())
    }

    /// All counters, in column order.
    pub fn counters() -> impl Iterator<Item = Metric> {
        ALL.iter().copied().filter(|metric| metric.definition().kind == Kind::Counter)
    }

    /// All levels, in column order: gauges, and those that are looked at at marks only.
    pub fn levels() -> impl Iterator<Item = Metric> {
        ALL.iter().copied().filter(|metric| matches!(metric.definition().kind, Kind::Gauge | Kind::MarkGauge))
    }
}

impl Serialize for Metric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Metric::by_name(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown metric `{name}`")))
    }
}

/// A value for each metric; `None` is absent, which is not 0.
#[derive(Clone, PartialEq, Eq)]
pub struct Values {
    /// One bit a metric: whether its value is known. An unknown value's place holds 0, so that equality is derived.
    known: u128,
    values: [u64; COUNT],
}

const _: () = assert!(COUNT <= u128::BITS as usize, "one bit a metric");

impl Values {
    /// All absent.
    pub const ABSENT: Values = Values { known: 0, values: [0; COUNT] };

    /// The value, if it is known.
    pub fn get(&self, metric: Metric) -> Option<u64> {
        let index = metric as usize;
        (self.known >> index & 1 == 1).then_some(self.values[index])
    }

    /// Sets or clears one value.
    pub fn set(&mut self, metric: Metric, value: impl Into<Option<u64>>) {
        let (index, value) = (metric as usize, value.into());
        self.known = self.known & !(1 << index) | u128::from(value.is_some()) << index;
        self.values[index] = value.unwrap_or(0);
    }

    /// The values in column order.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, Option<u64>)> + '_ {
        ALL.iter().map(|&metric| (metric, self.get(metric)))
    }

    /// Takes every value that `other` knows.
    pub fn merge(&mut self, other: &Values) {
        for (metric, value) in other.iter() {
            if value.is_some() {
                self.set(metric, value);
            }
        }
    }
}

impl Default for Values {
    fn default() -> Self {
        Values::ABSENT
    }
}

impl std::fmt::Debug for Values {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.iter().filter_map(|(metric, value)| Some((metric.name(), value?)));
        formatter.debug_map().entries(known).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let mut seen = std::collections::HashSet::new();
        for definition in METRICS {
            assert!(seen.insert(definition.name), "{} stands twice", definition.name);
            match definition.unit {
                Unit::Bytes => assert!(definition.name.ends_with("_bytes")),
                Unit::Nanoseconds => assert!(definition.name.ends_with("_ns")),
                Unit::Count => {}
            }
            assert!(!definition.meaning.is_empty());
        }
    }

    #[test]
    fn absent_is_not_zero() {
        let mut values = Values::default();
        assert_eq!(values.get(Metric::RssBytes), None);
        values.set(Metric::RssBytes, 0);
        assert_eq!(values.get(Metric::RssBytes), Some(0));
        values.set(Metric::RssBytes, 5);
        values.set(Metric::RssBytes, None);
        assert_eq!(values, Values::ABSENT);
    }
}
