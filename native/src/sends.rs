//! `plain_sends`. The twin is `lockstep.protocol.kernels.plain_sends`, which says what a plain send is.
use crate::json::Scanner;
use crate::stored::{stored_properties, Message, Places, Sends};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};
use std::borrow::Cow;
use std::io::Write;

const SEND_MESSAGE: i64 = 10;
const SEND_MESSAGE_V2: i64 = 310;
// Of SEND_MESSAGE, in the order of the letters of SEND_MESSAGE_V2; the last one has no long name.
const LONG_NAMES: [&str; FIELDS - 1] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
];
// librocketmq signs each request, also for a broker that checks no signature.
const SIGNATURE: [&str; 3] = ["AccessKey", "OnsChannel", "Signature"];
const TEXTS: [usize; 5] = [0, 1, 2, 8, 13]; // a, b, c, i, n

const TOPIC_BYTES_MAX: usize = 255;
const PROTOCOL_VERSION: i32 = 409;
pub const TRANSACTION: i32 = 0xC;
const FIELDS: usize = 14; // a to n
const NEEDED: usize = 8; // a to h
const DIGITS_MAX: usize = 18; // fits 64 bits
const CHECKED_DIGITS_MAX: usize = 9; // of what is not stored

/// SendSettings of kernels.py.
#[derive(FromPyObject)]
pub struct SendSettings<'py> {
    pub cluster_pair: Bound<'py, PyString>,
    pub message_id_prefix: Bound<'py, PyBytes>,
    pub store_host: Bound<'py, PyBytes>,
    pub store_port: i32,
    pub body_bytes_max: usize,
    pub header_bytes_max: usize,
    pub count_max: usize,
}

impl SendSettings<'_> {
    /// `born`: the address and the port of the peer.
    pub fn places<'a>(&'a self, born: &'a (Bound<'_, PyBytes>, i32), now_ms: i64) -> Places<'a> {
        Places {
            born_host: born.0.as_bytes(),
            born_port: born.1,
            now_ms,
            store_host: self.store_host.as_bytes(),
            store_port: self.store_port,
        }
    }
}

struct Send<'a> {
    opaque: i64,
    fields: [Option<Cow<'a, str>>; FIELDS],
}

struct Run<'py> {
    topic: Bound<'py, PyString>,
    name: Vec<u8>,
    queue_id: i32,
    first_offset: i64,
    entries: Vec<u8>,
    count: i64,
}

struct Fields<'a> {
    are_long: bool,
    values: [Option<Cow<'a, str>>; FIELDS],
}

/// A text as it is, a number or a boolean as text.
fn value<'a>(scanner: &mut Scanner<'a>, place: usize) -> Option<Cow<'a, str>> {
    if scanner.is_at_text() {
        return scanner.string();
    }
    if TEXTS.contains(&place) {
        return None;
    }
    if scanner.takes_word("true") {
        return Some(Cow::Borrowed("true"));
    }
    if scanner.takes_word("false") {
        return Some(Cow::Borrowed("false"));
    }
    Some(Cow::Owned(scanner.number()?.to_string()))
}

fn fields<'a>(scanner: &mut Scanner<'a>) -> Option<Fields<'a>> {
    let mut values: [Option<Cow<'a, str>>; FIELDS] = Default::default();
    let (mut long_names, mut letters) = (0, 0);
    if !scanner.takes(b'{') {
        return None;
    }
    loop {
        let name = scanner.string()?;
        if !scanner.takes(b':') {
            return None;
        }
        if SIGNATURE.contains(&&*name) {
            scanner.string()?;
        } else {
            let place = match name.as_bytes() {
                [letter] => {
                    letters += 1;
                    letter.checked_sub(b'a')? as usize
                }
                _ => {
                    long_names += 1;
                    LONG_NAMES.iter().position(|&long| long == name)?
                }
            };
            if place >= FIELDS || values[place].is_some() {
                return None;
            }
            values[place] = Some(value(scanner, place)?);
        }
        if scanner.takes(b'}') {
            break;
        }
        if !scanner.takes(b',') {
            return None;
        }
    }
    let are_there =
        values[..NEEDED].iter().all(Option::is_some) && (long_names == 0 || letters == 0);
    are_there.then_some(Fields {
        are_long: long_names > 0,
        values,
    })
}

/// The header of a plain send.
fn read_header(header: &[u8]) -> Option<Send<'_>> {
    let mut scanner = Scanner::new(header)?;
    let (mut code, mut flag, mut opaque, mut version) = (None, None, None, None);
    let (mut language, mut remark, mut kind, mut ext) = (None, false, false, None);
    if !scanner.takes(b'{') {
        return None;
    }
    loop {
        let name = scanner.string()?;
        if !scanner.takes(b':') {
            return None;
        }
        match &*name {
            "code" if code.is_none() => code = Some(scanner.number()?),
            "flag" if flag.is_none() => flag = Some(scanner.number()?),
            "opaque" if opaque.is_none() => opaque = Some(scanner.number()?),
            "version" if version.is_none() => version = Some(scanner.number()?),
            "language" if language.is_none() => language = Some(scanner.string()?),
            "extFields" if ext.is_none() => ext = Some(fields(&mut scanner)?),
            "serializeTypeCurrentRPC" if !kind => {
                kind = true;
                scanner.string()?;
            }
            "remark" if !remark => {
                remark = true;
                if !scanner.takes_word("null") {
                    scanner.string()?;
                }
            }
            _ => return None,
        }
        if scanner.takes(b'}') {
            break;
        }
        if !scanner.takes(b',') {
            return None;
        }
    }
    let (ext, opaque) = (ext?, opaque?);
    let is_send = code
        == Some(if ext.are_long {
            SEND_MESSAGE
        } else {
            SEND_MESSAGE_V2
        });
    let is_plain = is_send && flag.unwrap_or(0) == 0 && language.is_some() && scanner.is_at_end();
    is_plain.then_some(Send {
        opaque,
        fields: ext.values,
    })
}

fn digits(text: &str) -> Option<i64> {
    let is_plain =
        (1..=DIGITS_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain {
        text.parse().ok()
    } else {
        None
    }
}

fn int32(text: &str) -> Option<i32> {
    i32::try_from(digits(text)?).ok()
}

#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn plain_sends<'py>(
    data: &Bound<'py, PyBytes>,
    start: usize,
    settings: SendSettings<'py>,
    next_offset: &Bound<'py, PyAny>,
    now_ms: i64,
    born: (Bound<'py, PyBytes>, i32),
    log_offset: i64,
) -> PyResult<Option<Sends<'py>>> {
    let (py, bytes, cluster_pair) = (data.py(), data.as_bytes(), settings.cluster_pair.to_cow()?);
    let prefix = std::str::from_utf8(settings.message_id_prefix.as_bytes())?;
    let places = settings.places(&born, now_ms);
    let (mut log, mut answers) = (Vec::<u8>::new(), Vec::<u8>::new());
    let (mut properties, mut header) = (Vec::<u8>::new(), Vec::<u8>::new());
    let mut runs: Vec<Run<'py>> = Vec::new();
    let (mut position, mut count) = (start, 0);
    while count < settings.count_max {
        let Some(head) = bytes.get(position..position + 8) else {
            break;
        };
        let total = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        // The header type of JSON is 0, so the word is the header's length.
        let header_bytes = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
        // No sum of what a peer says: with 32 bits it may be small again.
        let is_whole =
            total >= 4 && total <= bytes.len() - position - 4 && header_bytes <= total - 4;
        if !is_whole {
            break;
        }
        let (end, body_start) = (position + 4 + total, position + 8 + header_bytes);
        if header_bytes > settings.header_bytes_max || end - body_start > settings.body_bytes_max {
            break;
        }
        let Some(send) = read_header(&bytes[position + 8..body_start]) else {
            break;
        };
        let field = |letter: u8| send.fields[(letter - b'a') as usize].as_deref();
        let number = |letter: u8| int32(field(letter).unwrap_or("0"));
        let checked = |letter: u8| {
            let text = field(letter).unwrap_or("0");
            digits(text).filter(|_| text.len() <= CHECKED_DIGITS_MAX)
        };
        let (
            Some(_),
            Some(queue_id),
            Some(sys_flag),
            Some(flag),
            Some(reconsume_times),
            Some(_),
            Some(born),
        ) = (
            checked(b'd'),
            number(b'e'),
            number(b'f'),
            number(b'h'),
            number(b'j'),
            checked(b'l'),
            digits(field(b'g').unwrap_or("")),
        )
        else {
            break;
        };
        if sys_flag & TRANSACTION != 0 || !matches!(field(b'm'), None | Some("false" | "0")) {
            break;
        }
        let Some(code) =
            stored_properties(field(b'i').unwrap_or(""), &cluster_pair, &mut properties)
        else {
            break;
        };
        let (topic, body) = (field(b'b').unwrap_or(""), &bytes[body_start..end]);
        // A longer one has no place in the stored layout.
        if topic.len() > TOPIC_BYTES_MAX {
            break;
        }
        let known = runs
            .iter()
            .rposition(|run| run.queue_id == queue_id && run.name == topic.as_bytes());
        let index = match known {
            Some(index) => index,
            None => {
                let name = PyString::new(py, topic);
                let Some(first_offset) = next_offset
                    .call1((&name, queue_id))?
                    .extract::<Option<i64>>()?
                else {
                    break;
                };
                let (entries, name_bytes) = (Vec::new(), topic.as_bytes().to_vec());
                runs.push(Run {
                    topic: name,
                    name: name_bytes,
                    queue_id,
                    first_offset,
                    entries,
                    count: 0,
                });
                runs.len() - 1
            }
        };
        let run = &mut runs[index];
        let at = log_offset + log.len() as i64;
        let queue_offset = run.first_offset + run.count;
        let message = Message {
            queue_id,
            flag,
            queue_offset,
            sys_flag,
            born_ms: born,
            reconsume_times,
            body,
            topic: topic.as_bytes(),
            properties: &properties,
        };
        message.store(&places, at, code, &mut log, &mut run.entries);
        run.count += 1;
        header.clear();
        write!(
            header,
            "{{\"code\":0,\"extFields\":{{\"msgId\":\"{prefix}{at:016X}\",\"queueId\":\"{queue_id}\",\"queueOffset\":\"{queue_offset}\",\
             \"MSG_REGION\":\"DefaultRegion\",\"TRACE_ON\":\"true\"}},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":{},\
             \"serializeTypeCurrentRPC\":\"JSON\",\"version\":{PROTOCOL_VERSION}}}",
            send.opaque
        )?;
        answers.extend_from_slice(&(header.len() as u32 + 4).to_be_bytes());
        answers.extend_from_slice(&(header.len() as u32).to_be_bytes());
        answers.extend_from_slice(&header);
        position = end;
        count += 1;
    }
    if count == 0 {
        return Ok(None);
    }
    let taken = PyList::empty(py);
    for run in runs.iter().filter(|run| run.count > 0) {
        taken.append((
            &run.topic,
            run.queue_id,
            run.first_offset,
            PyBytes::new(py, &run.entries),
        ))?;
    }
    Ok(Some((
        position,
        count,
        PyBytes::new(py, &log),
        PyBytes::new(py, &answers),
        taken,
    )))
}
