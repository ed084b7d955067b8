//! What this process takes of the machine, where the kernel tells it in `/proc`.

use std::fs;

use crate::metrics::Number;

/// Ticks of the clock in which the kernel counts a process's time: 100 a second for every program,
/// whatever the kernel itself does.
const TICKS: f64 = 100.0;
const PAGE_BYTES: f64 = 4096.0;

/// Memory, processor time and open files; nothing where they are not told.
pub(super) fn numbers() -> Vec<Number> {
    let mut numbers = Vec::new();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything, in parentheses.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let field = |n: usize| after.split_whitespace().nth(n)?.parse::<f64>().ok();
    if let (Some(user), Some(system)) = (field(11), field(12)) {
        let help = "Processor time of the process, in seconds";
        numbers.push(Number::so_far("process_cpu_seconds", help, (user + system) / TICKS));
    }
    if let Some(pages) = field(21) {
        let help = "Resident memory of the process, in bytes";
        numbers.push(Number::now("process_resident_memory_bytes", help, pages * PAGE_BYTES));
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        let open = u32::try_from(files.count()).unwrap_or(u32::MAX);
        let help = "Open files and sockets of the process";
        numbers.push(Number::now("process_open_fds", help, f64::from(open)));
    }
    numbers
}
