//! Messages in the stored layout (docs/wire.md 5). The twin is `lockstep.protocol.messages.message`.
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::borrow::Cow;

const MAGIC: u32 = 0xDAA3_20A7;
const OVERHEAD_BYTES: i64 = 91; // with IPv4 hosts
const FIXED_BYTES: usize = 88; // with IPv4 hosts: all before the body
const COMPRESSED: i32 = 1;
const BORN_V6: i32 = 1 << 4;
const STORE_V6: i32 = 1 << 5;
const NAME_END: u8 = 1;
const PAIR_END: u8 = 2;
// In order of preference, as SHARDING_KEY_NAMES of properties.py.
const SHARDING_KEY_NAMES: [&str; 3] = ["__SHARDINGKEY", "SHARDING_KEY", "__SHARDING_KEY"];

fn int32(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn int64(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn int16(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn text<'a>(bytes: &'a [u8]) -> Cow<'a, str> {
    String::from_utf8_lossy(bytes)
}

/// What was made first, also by Python code that ran meanwhile.
fn kept<'py, T>(
    py: Python<'py>,
    place: &PyOnceLock<Py<T>>,
    make: impl FnOnce() -> Bound<'py, T>,
) -> Bound<'py, T> {
    if let Some(value) = place.get(py) {
        return value.bind(py).clone();
    }
    let made = make();
    match place.set(py, made.clone().unbind()) {
        Ok(()) => made,
        Err(_) => place.get(py).map_or(made, |value| value.bind(py).clone()),
    }
}

fn holding<T>(py: Python<'_>, value: Py<T>) -> PyOnceLock<Py<T>> {
    let place = PyOnceLock::new();
    // It is empty, so this cannot fail.
    let _ = place.set(py, value);
    place
}

/// Where the parts of one stored message are. All were checked when it was decoded.
#[derive(Clone, Copy)]
struct Layout {
    start: usize,
    born_bytes: usize,
    store_bytes: usize,
    body: usize,
    tail: usize, // of topicLength
    end: usize,
}

impl Layout {
    fn born_host(&self) -> usize {
        self.start + 48
    }
    fn store_time(&self) -> usize {
        self.born_host() + self.born_bytes + 4
    }
    fn store_host(&self) -> usize {
        self.store_time() + 8
    }
    fn after_hosts(&self) -> usize {
        self.store_host() + self.store_bytes + 4
    }
}

/// A message that a consumer receives: the class MessageExt where the native part is used.
#[pyclass(name = "MessageExt", module = "lockstep.protocol.messages.message")]
pub struct StoredMessage {
    buffer: Py<PyBytes>,
    layout: Layout,
    // Made at the first use. A getter borrows the message shared, because what it makes may run Python code, which may
    // read the same message.
    changed_body: PyOnceLock<Py<PyAny>>,
    topic: PyOnceLock<Py<PyString>>,
    properties: PyOnceLock<Py<PyDict>>,
    body_error: Option<Py<PyString>>,
    #[pyo3(get, set)]
    body_bytes: usize,
    #[pyo3(get, set)]
    bounds: Option<Py<PyTuple>>,
    #[pyo3(get, set)]
    broker_name: Py<PyString>,
    #[pyo3(get, set)]
    queue_offset: i64,
    #[pyo3(get, set)]
    reconsume_times: i64,
}

impl StoredMessage {
    fn int(&self, py: Python<'_>, at: usize) -> i32 {
        int32(self.buffer.as_bytes(py), at).unwrap_or_default()
    }

    fn long(&self, py: Python<'_>, at: usize) -> i64 {
        int64(self.buffer.as_bytes(py), at).unwrap_or_default()
    }

    fn slice<'a>(&'a self, py: Python<'a>, from: usize, to: usize) -> &'a [u8] {
        self.buffer.as_bytes(py).get(from..to).unwrap_or_default()
    }

    fn stored_topic<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        let tail = self.layout.tail;
        let length = self
            .buffer
            .as_bytes(py)
            .get(tail)
            .copied()
            .unwrap_or_default() as usize;
        self.slice(py, tail + 1, tail + 1 + length)
    }

    fn stored_properties<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        self.slice(
            py,
            self.layout.tail + 3 + self.stored_topic(py).len(),
            self.layout.end,
        )
    }

    /// The pairs that `decode_properties` would return, in order: a later one of the same name replaces an earlier one.
    fn pairs<'a>(&'a self, py: Python<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.stored_properties(py)
            .split(|&byte| byte == PAIR_END)
            .filter_map(|piece| {
                let middle = piece.iter().position(|&byte| byte == NAME_END)?;
                let (name, value) = (&piece[..middle], &piece[middle + 1..]);
                (!name.is_empty() && !value.is_empty()).then_some((name, value))
            })
    }

    /// One property, without decoding all.
    fn property<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(properties) = self.properties.get(py) {
            return properties.bind(py).get_item(name);
        }
        let last = self
            .pairs(py)
            .filter(|(found, _)| *found == name.as_bytes())
            .last();
        Ok(last.map(|(_, value)| PyString::new(py, &text(value)).into_any()))
    }

    fn copied(&self, py: Python<'_>) -> StoredMessage {
        StoredMessage {
            buffer: self.buffer.clone_ref(py),
            layout: self.layout,
            changed_body: match self.changed_body.get(py) {
                Some(body) => holding(py, body.clone_ref(py)),
                None => PyOnceLock::new(),
            },
            topic: PyOnceLock::new(),
            properties: PyOnceLock::new(),
            body_error: None,
            body_bytes: self.layout.tail - self.layout.body,
            bounds: None,
            broker_name: self.broker_name.clone_ref(py),
            queue_offset: int64(self.buffer.as_bytes(py), self.layout.start + 20)
                .unwrap_or_default(),
            reconsume_times: i64::from(self.int(py, self.layout.after_hosts())),
        }
    }
}

#[pymethods]
impl StoredMessage {
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        kept(py, &self.changed_body, || self.stored_body(py).into_any())
    }

    #[setter]
    fn set_body(&mut self, py: Python<'_>, body: Py<PyAny>) {
        self.changed_body = holding(py, body);
    }

    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        kept(py, &self.topic, || {
            PyString::new(py, &text(self.stored_topic(py)))
        })
    }

    // A retried message gets its original topic again (wire.md 10.2).
    #[setter]
    fn set_topic(&mut self, py: Python<'_>, topic: Py<PyString>) {
        self.topic = holding(py, topic);
    }

    #[getter]
    fn first_topic<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.property(py, "RETRY_TOPIC")? {
            Some(first) => Ok(first),
            None => Ok(PyString::new(py, &text(self.stored_topic(py))).into_any()),
        }
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(properties) = self.properties.get(py) {
            return Ok(properties.bind(py).clone());
        }
        let properties = PyDict::new(py);
        for (name, value) in self.pairs(py) {
            properties.set_item(&*text(name), &*text(value))?;
        }
        if let Some(bounds) = &self.bounds {
            let bounds = bounds.bind(py);
            properties.set_item("MIN_OFFSET", bounds.get_item(0)?.str()?)?;
            properties.set_item("MAX_OFFSET", bounds.get_item(1)?.str()?)?;
        }
        Ok(kept(py, &self.properties, || properties))
    }

    #[getter]
    fn body_error<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.body_error.as_ref().map(|error| error.bind(py).clone())
    }

    #[getter]
    fn stored_body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.slice(py, self.layout.body, self.layout.tail))
    }

    #[getter]
    fn stored_bytes(&self) -> usize {
        self.layout.end - self.layout.start
    }

    #[getter]
    fn body_crc(&self, py: Python<'_>) -> i32 {
        self.int(py, self.layout.start + 8)
    }

    #[getter]
    fn queue_id(&self, py: Python<'_>) -> i32 {
        self.int(py, self.layout.start + 12)
    }

    #[getter]
    fn flag(&self, py: Python<'_>) -> i32 {
        self.int(py, self.layout.start + 16)
    }

    #[getter]
    fn commit_log_offset(&self, py: Python<'_>) -> i64 {
        self.long(py, self.layout.start + 28)
    }

    #[getter]
    fn sys_flag(&self, py: Python<'_>) -> i32 {
        self.int(py, self.layout.start + 36)
    }

    #[getter]
    fn born_timestamp(&self, py: Python<'_>) -> i64 {
        self.long(py, self.layout.start + 40)
    }

    #[getter]
    fn born_host<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, i32) {
        let (at, length) = (self.layout.born_host(), self.layout.born_bytes);
        (
            PyBytes::new(py, self.slice(py, at, at + length)),
            self.int(py, at + length),
        )
    }

    #[getter]
    fn store_timestamp(&self, py: Python<'_>) -> i64 {
        self.long(py, self.layout.store_time())
    }

    #[getter]
    fn store_host<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, i32) {
        let (at, length) = (self.layout.store_host(), self.layout.store_bytes);
        (
            PyBytes::new(py, self.slice(py, at, at + length)),
            self.int(py, at + length),
        )
    }

    #[getter]
    fn prepared_transaction_offset(&self, py: Python<'_>) -> i64 {
        self.long(py, self.layout.after_hosts() + 4)
    }

    #[getter]
    fn offset_message_id(&self, py: Python<'_>) -> String {
        let (at, length) = (self.layout.store_host(), self.layout.store_bytes);
        let host: String = self
            .slice(py, at, at + length)
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect();
        format!(
            "{host}{:08X}{:016X}",
            self.int(py, at + length),
            self.commit_log_offset(py)
        )
    }

    #[getter]
    fn msg_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.property(py, "UNIQ_KEY")? {
            Some(key) if key.is_truthy()? => Ok(key),
            _ => Ok(PyString::new(py, &self.offset_message_id(py)).into_any()),
        }
    }

    #[getter]
    fn transaction_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self
            .property(py, "UNIQ_KEY")?
            .unwrap_or_else(|| PyString::new(py, "").into_any()))
    }

    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.property(py, "TAGS")
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.property(py, "KEYS")
    }

    #[getter]
    fn sharding_key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        for name in SHARDING_KEY_NAMES {
            if let Some(key) = self.property(py, name)? {
                if key.is_truthy()? {
                    return Ok(Some(key));
                }
            }
        }
        Ok(None)
    }

    /// The same message with this `body_error`.
    fn unreadable(&self, py: Python<'_>, why: Py<PyString>) -> PyResult<StoredMessage> {
        let mut message = self.copied(py);
        message.body_error = Some(why);
        if let Some(body) = message.changed_body.get(py) {
            message.body_bytes = body.bind(py).len()?;
        }
        Ok(message)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let topic = self.topic(py);
        let body_bytes = self.body(py).len()?;
        let id = self.msg_id(py)?;
        Ok(format!(
            "<MessageExt {topic}:{}@{} {id} {body_bytes}B>",
            self.queue_id(py),
            self.queue_offset
        ))
    }
}

fn short_of(position: usize, at: usize, size: usize, length: usize) -> String {
    // As struct.error says it.
    format!(
        "byte {position}: unpack_from requires a buffer of at least {} bytes for unpacking {size} bytes at offset {at} \
         (actual buffer size is {length})",
        at + size
    )
}

/// The parts of the record at `position`, and whether its body is compressed; or what is wrong with it.
fn layout_at(buffer: &[u8], position: usize) -> Result<(Layout, bool), String> {
    let length = buffer.len();
    let field = |at: usize| int32(buffer, at).unwrap_or_default();
    if position + FIXED_BYTES > length {
        return Err(short_of(position, position, FIXED_BYTES, length));
    }
    let (size, magic, sys_flag) = (
        i64::from(field(position)),
        field(position + 4) as u32,
        field(position + 36),
    );
    if magic != MAGIC {
        return Err(format!(
            "byte {position}: magic {magic:#x} is not a message's {MAGIC:#x}"
        ));
    }
    let born_bytes = if sys_flag & BORN_V6 != 0 { 16 } else { 4 };
    let store_bytes = if sys_flag & STORE_V6 != 0 { 16 } else { 4 };
    let fixed = FIXED_BYTES - 8 + born_bytes + store_bytes;
    if position + fixed > length {
        return Err(short_of(position, position, fixed, length));
    }
    let body = position + fixed;
    let body_bytes = i64::from(field(body - 4));
    let (tail, end) = (body as i64 + body_bytes, position as i64 + size);
    let fits = size >= OVERHEAD_BYTES && body_bytes >= 0 && tail < end && end <= length as i64;
    if !fits {
        return Err(format!(
            "byte {position}: a message of {size} bytes with a body of {body_bytes} does not fit"
        ));
    }
    let (tail, end) = (tail as usize, end as usize);
    let texts = tail + 3 + buffer.get(tail).copied().unwrap_or_default() as usize;
    let Some(properties_bytes) = int16(buffer, texts - 2) else {
        return Err(short_of(position, texts - 2, 2, length));
    };
    if properties_bytes < 0 || texts + properties_bytes as usize != end {
        return Err(format!(
            "byte {position}: topic and properties do not end where the message of {size} bytes does"
        ));
    }
    Ok((
        Layout {
            start: position,
            born_bytes,
            store_bytes,
            body,
            tail,
            end,
        },
        sys_flag & COMPRESSED != 0,
    ))
}

/// Append the messages of the buffer; add the indexes of compressed ones to `packed`. The twin: `decode_into`.
#[pyfunction]
pub fn decode_into(
    messages: &Bound<'_, PyList>,
    packed: &Bound<'_, PyList>,
    buffer: &Bound<'_, PyBytes>,
    broker_name: &Bound<'_, PyString>,
) -> PyResult<Option<String>> {
    let (py, bytes) = (buffer.py(), buffer.as_bytes());
    let mut position = 0;
    while position < bytes.len() {
        let (layout, is_compressed) = match layout_at(bytes, position) {
            Ok(found) => found,
            Err(problem) => return Ok(Some(problem)),
        };
        if is_compressed {
            packed.append(messages.len())?;
        }
        let message = StoredMessage {
            buffer: buffer.clone().unbind(),
            layout,
            changed_body: PyOnceLock::new(),
            topic: PyOnceLock::new(),
            properties: PyOnceLock::new(),
            body_error: None,
            body_bytes: layout.tail - layout.body,
            bounds: None,
            broker_name: broker_name.clone().unbind(),
            queue_offset: int64(bytes, position + 20).unwrap_or_default(),
            reconsume_times: i64::from(int32(bytes, layout.after_hosts()).unwrap_or_default()),
        };
        messages.append(Bound::new(py, message)?)?;
        position = layout.end;
    }
    Ok(None)
}
