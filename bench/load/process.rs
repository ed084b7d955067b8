//! CPU time and memory of processes, as the kernel counts them.

use std::fs;

/// What `/proc` counts CPU time in.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of a process, with those of children that it has waited for if asked.
fn cpu(process: u32, with_ended_children: bool) -> f64 {
    let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else { return 0.0 };
    // The program's name, in brackets, may hold spaces.
    let Some((_, rest)) = stat.rsplit_once(") ") else { return 0.0 };
    let fields: Vec<f64> = rest.split(' ').map(|field| field.parse().unwrap_or(0.0)).collect();
    let mut ticks = fields[11] + fields[12];
    if with_ended_children {
        ticks += fields[13] + fields[14];
    }
    ticks / TICKS_PER_SECOND
}

/// CPU seconds of one process with all its threads, in user mode and in the kernel.
pub(crate) fn cpu_of(process: u32) -> f64 {
    cpu(process, false)
}

/// CPU seconds of a process, of its children, and of those children that have ended.
pub(crate) fn cpu_of_family(parent: u32) -> f64 {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    cpu(parent, true) + children.map(|child| cpu(child, true)).sum::<f64>()
}

/// Resident memory in bytes.
pub(crate) fn memory_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// The process that started another.
pub(crate) fn parent_of(process: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    parent.trim().parse().unwrap()
}

/// How busy the machine is: runnable processes, averaged over a minute.
pub(crate) fn busy() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}
