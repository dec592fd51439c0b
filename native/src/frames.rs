//! `plain_frame`. The twin is `lockstep.protocol.kernels_together.plain_frame`, which says what it takes.
use crate::sends::{SendSettings, TRANSACTION};
use crate::stored::{java_hash, stored_properties, Message, Sends, PROPERTIES_BYTES_MAX};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

const HEAD_BYTES: usize = 32;
const NO_NUMBERS: i64 = -1;
const PROPERTIES_MAX: usize = 64;
const MANY_BYTES: usize = 4 * PROPERTIES_MAX;
const TOPIC_BYTES_MAX: usize = 255;
const WAIT_END: &[u8] = b"\x02WAIT\x01true";
const NAMES: [&[u8]; 4] = [b"CLUSTER", b"WAIT", b"DEL", b"TRAN_MSG"];
const START_DELIVER_TIME: &str = "__STARTDELIVERTIME";

struct Queue<'py> {
    topic: Bound<'py, PyString>,
    name: Vec<u8>,
    queue_id: i32,
    next_number: i64,
    first_offset: i64,
    count: i64,
    entries: Vec<u8>,
}

struct Head {
    queue: usize,
    number: i64,
    born_ms: i64,
    flag: i32,
    sys_flag: i32,
    body_bytes: i32,
    text_bytes: usize,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let int32 = |at: usize| Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let int64 = |at: usize| Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        Some(Head {
            queue: short(0)? as usize,
            number: int64(2)?,
            born_ms: int64(10)?,
            flag: int32(18)?,
            sys_flag: int32(22)?,
            body_bytes: int32(26)?,
            text_bytes: short(30)? as usize,
        })
    }
}

fn has(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The hash of the last tag, as `decode_properties` finds it.
fn tag_code(text: &str) -> i64 {
    let mut pairs = text
        .split('\u{2}')
        .filter_map(|piece| piece.split_once('\u{1}'));
    pairs
        .rfind(|(name, value)| *name == "TAGS" && !value.is_empty())
        .map_or(0, |(_, value)| java_hash(value))
}

/// The properties as they are stored, and the hash of the tag.
fn frame_properties(text: &[u8], cluster_pair: &str, into: &mut Vec<u8>) -> Option<i64> {
    let pieces = || text.iter().filter(|&&byte| byte == 2).count();
    if text.len() > MANY_BYTES && pieces() > PROPERTIES_MAX {
        return None;
    }
    let own = text.strip_suffix(WAIT_END).unwrap_or(text);
    if !own.is_ascii() || NAMES.iter().any(|name| has(own, name)) {
        let decoded = std::str::from_utf8(text).ok()?;
        if decoded.contains(START_DELIVER_TIME) {
            return None;
        }
        return stored_properties(decoded, cluster_pair, into);
    }
    into.clear();
    into.extend_from_slice(own);
    if !own.is_empty() {
        into.push(2);
    }
    into.extend_from_slice(cluster_pair.as_bytes());
    (into.len() <= PROPERTIES_BYTES_MAX).then(|| std::str::from_utf8(own).map_or(0, tag_code))
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn plain_frame<'py>(
    body: &Bound<'py, PyBytes>,
    heads_begin: usize,
    count: usize,
    settings: SendSettings<'py>,
    queues: Vec<(Bound<'py, PyString>, i32, i64, i64)>,
    now_ms: i64,
    born: (Bound<'py, PyBytes>, i32),
    log_offset: i64,
) -> PyResult<Option<Sends<'py>>> {
    let (py, bytes, cluster_pair) = (body.py(), body.as_bytes(), settings.cluster_pair.to_cow()?);
    let places = settings.places(&born, now_ms);
    let mut states = Vec::with_capacity(queues.len());
    for (topic, queue_id, next_number, first_offset) in queues {
        let name = topic.to_cow()?.as_bytes().to_vec();
        if name.len() > TOPIC_BYTES_MAX {
            return Ok(None);
        }
        let (entries, count) = (Vec::new(), 0);
        states.push(Queue {
            topic,
            name,
            queue_id,
            next_number,
            first_offset,
            count,
            entries,
        });
    }
    let (mut log, mut rows, mut properties) = (Vec::new(), Vec::new(), Vec::new());
    let mut position = heads_begin + count * HEAD_BYTES;
    let Some(heads) = bytes.get(heads_begin..position) else {
        return Ok(None);
    };
    for head in heads.chunks_exact(HEAD_BYTES) {
        let Some(head) = Head::read(head) else {
            return Ok(None);
        };
        let (Some(queue), Ok(body_bytes)) =
            (states.get_mut(head.queue), usize::try_from(head.body_bytes))
        else {
            return Ok(None);
        };
        let body_end = position + body_bytes;
        let end = body_end + head.text_bytes;
        let (Some(content), Some(text)) = (bytes.get(position..body_end), bytes.get(body_end..end))
        else {
            return Ok(None);
        };
        let is_numbered = queue.next_number != NO_NUMBERS;
        if (is_numbered && head.number != queue.next_number)
            || head.sys_flag & TRANSACTION != 0
            || body_bytes > settings.body_bytes_max
        {
            return Ok(None);
        }
        let Some(code) = frame_properties(text, &cluster_pair, &mut properties) else {
            return Ok(None);
        };
        let (at, queue_offset) = (
            log_offset + log.len() as i64,
            queue.first_offset + queue.count,
        );
        let message = Message {
            queue_id: queue.queue_id,
            flag: head.flag,
            queue_offset,
            sys_flag: head.sys_flag,
            born_ms: head.born_ms,
            reconsume_times: 0,
            body: content,
            topic: &queue.name,
            properties: &properties,
        };
        message.store(&places, at, code, &mut log, &mut queue.entries);
        rows.extend_from_slice(&0_i32.to_be_bytes());
        rows.extend_from_slice(&queue_offset.to_be_bytes());
        rows.extend_from_slice(&at.to_be_bytes());
        queue.count += 1;
        queue.next_number += i64::from(is_numbered);
        position = end;
    }
    if position != bytes.len() || states.iter().any(|queue| queue.count == 0) {
        return Ok(None);
    }
    let runs = PyList::empty(py);
    for queue in &states {
        let entries = PyBytes::new(py, &queue.entries);
        runs.append((&queue.topic, queue.queue_id, queue.first_offset, entries))?;
    }
    Ok(Some((
        position,
        count,
        PyBytes::new(py, &log),
        PyBytes::new(py, &rows),
        runs,
    )))
}
