//! A message as it is stored (docs/wire.md 5), with its queue entry.
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

const MAGIC: u32 = 0xDAA3_20A7;
const OVERHEAD_BYTES: usize = 91;
const V6_HOSTS: i32 = 0x30;
pub const PROPERTIES_BYTES_MAX: usize = 32767;
const PIECES_MAX: usize = 17;
const REFUSED_NAMES: [&str; 6] = [
    "DELAY",
    "TRAN_MSG",
    "CLUSTER",
    "TIMER_DELAY_SEC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
];

/// What the messages of one call have in common.
pub struct Places<'a> {
    pub born_host: &'a [u8],
    pub born_port: i32,
    pub now_ms: i64,
    pub store_host: &'a [u8],
    pub store_port: i32,
}

/// PlainSends of kernels.py: where the next request begins, how many sends, the log, the answers, the runs of queues.
pub type Sends<'py> = (
    usize,
    usize,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyList>,
);

pub struct Message<'a> {
    pub queue_id: i32,
    pub flag: i32,
    pub queue_offset: i64,
    pub sys_flag: i32,
    pub born_ms: i64,
    pub reconsume_times: i32,
    pub body: &'a [u8],
    pub topic: &'a [u8],
    pub properties: &'a [u8],
}

impl Message<'_> {
    /// Writes it to the end of `log`, which is at `at`, and its entry with the hash of its tag to `entries`.
    pub fn store(
        &self,
        places: &Places<'_>,
        at: i64,
        code: i64,
        log: &mut Vec<u8>,
        entries: &mut Vec<u8>,
    ) {
        let size = OVERHEAD_BYTES + self.body.len() + self.topic.len() + self.properties.len();
        log.reserve(size);
        log.extend_from_slice(&(size as i32).to_be_bytes());
        log.extend_from_slice(&MAGIC.to_be_bytes());
        log.extend_from_slice(&(crc32fast::hash(self.body) & 0x7FFF_FFFF).to_be_bytes());
        log.extend_from_slice(&self.queue_id.to_be_bytes());
        log.extend_from_slice(&self.flag.to_be_bytes());
        log.extend_from_slice(&self.queue_offset.to_be_bytes());
        log.extend_from_slice(&at.to_be_bytes());
        log.extend_from_slice(&(self.sys_flag & !V6_HOSTS).to_be_bytes());
        log.extend_from_slice(&self.born_ms.to_be_bytes());
        log.extend_from_slice(places.born_host);
        log.extend_from_slice(&places.born_port.to_be_bytes());
        log.extend_from_slice(&places.now_ms.to_be_bytes());
        log.extend_from_slice(places.store_host);
        log.extend_from_slice(&places.store_port.to_be_bytes());
        log.extend_from_slice(&self.reconsume_times.to_be_bytes());
        log.extend_from_slice(&0_i64.to_be_bytes());
        log.extend_from_slice(&(self.body.len() as i32).to_be_bytes());
        log.extend_from_slice(self.body);
        log.push(self.topic.len() as u8);
        log.extend_from_slice(self.topic);
        log.extend_from_slice(&(self.properties.len() as i16).to_be_bytes());
        log.extend_from_slice(self.properties);
        entries.extend_from_slice(&at.to_be_bytes());
        entries.extend_from_slice(&(size as i32).to_be_bytes());
        entries.extend_from_slice(&code.to_be_bytes());
    }
}

/// Java's String.hashCode.
pub fn java_hash(text: &str) -> i64 {
    let hash = text.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(i32::from(unit))
    });
    i64::from(hash)
}

/// The properties as they are stored, and the hash of the tag.
pub fn stored_properties(given: &str, cluster_pair: &str, into: &mut Vec<u8>) -> Option<i64> {
    let mut names: [&str; PIECES_MAX] = [""; PIECES_MAX];
    let mut code = 0;
    into.clear();
    for (index, piece) in given.split('\u{2}').enumerate() {
        if index == PIECES_MAX {
            return None;
        }
        let Some((name, value)) = piece.split_once('\u{1}') else {
            continue;
        };
        if name.is_empty() || value.is_empty() {
            continue;
        }
        if REFUSED_NAMES.contains(&name) || names[..index].contains(&name) {
            return None;
        }
        names[index] = name;
        if name == "TAGS" {
            code = java_hash(value);
        }
        if name != "WAIT" {
            into.extend_from_slice(piece.as_bytes());
            into.push(2);
        }
    }
    into.extend_from_slice(cluster_pair.as_bytes());
    (into.len() <= PROPERTIES_BYTES_MAX).then_some(code)
}
