//! `call_each`. Its twin is the loop of `ConsumeMessageOrderlyService._straight_calls`, which awaits each call.
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PySendResult, PyString};

/// What all calls share (`CallsOfRun` of straight.py).
#[derive(FromPyObject)]
pub struct CallsOfRun<'py> {
    listener: Bound<'py, PyAny>,
    context_class: Bound<'py, PyAny>,
    queue: Bound<'py, PyAny>,
    process_queue: Bound<'py, PyAny>,
    clock: Bound<'py, PyAny>,
    success: Bound<'py, PyAny>,
    /// Objects and their attributes: when one is true, no further call begins.
    ends: Vec<(Bound<'py, PyAny>, Bound<'py, PyString>)>,
    long_ms: i64,
    until_ms: i64,
}

/// One call that is not over, or has an unusual end: its context; what it waits for, its answer or its error; and,
/// if it is not over, the iterator that goes on.
type Left<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyIterator>>,
    bool,
);

/// How many messages were handled in how many calls and ms; when the last call began; the time now; the call that is
/// left; and an error that is not the listener's. With it, too, what was handled must be committed.
type Made<'py> = (
    usize,
    usize,
    i64,
    i64,
    i64,
    Option<Left<'py>>,
    Option<Bound<'py, PyAny>>,
);

/// Call the listener with `batch` messages after the other, until one call does not end at once with SUCCESS.
#[pyfunction]
pub fn call_each<'py>(
    run: CallsOfRun<'py>,
    messages: &Bound<'py, PyList>,
    batch: usize,
    now_ms: i64,
) -> Made<'py> {
    let mut made = (0, 0, 0, now_ms, now_ms, None, None);
    if let Err(error) = make_calls(&run, messages, batch, &mut made) {
        made.6 = Some(
            error
                .into_value(messages.py())
                .into_bound(messages.py())
                .into_any(),
        );
    }
    made
}

/// An error comes from around the calls: the clock, a handler of a signal, an attribute that is no truth value.
fn make_calls<'py>(
    run: &CallsOfRun<'py>,
    messages: &Bound<'py, PyList>,
    batch: usize,
    made: &mut Made<'py>,
) -> PyResult<()> {
    let py = messages.py();
    let (handled, calls, spent_ms, begin_ms, now_ms, left, _) = made;
    let none = py.None().into_bound(py);
    let auto_commit = pyo3::intern!(py, "auto_commit");
    while *handled < messages.len() {
        let end = messages.len().min(*handled + batch);
        let context =
            run.context_class
                .call1((&run.queue, true, -1, &run.process_queue, &run.clock))?;
        *begin_ms = *now_ms;
        let begun = run
            .listener
            .call1((messages.get_slice(*handled, end), &context))
            .and_then(|call| call.call_method0(pyo3::intern!(py, "__await__")))
            .and_then(|call| call.cast_into::<PyIterator>().map_err(PyErr::from));
        let outcome = begun.and_then(|call| call.send(&none).map(|sent| (call, sent)));
        *left = match outcome {
            Ok((call, PySendResult::Next(waits_for))) => {
                Some((context, waits_for, Some(call), false))
            }
            Err(error) => Some((
                context,
                error.into_value(py).into_bound(py).into_any(),
                None,
                true,
            )),
            Ok((_, PySendResult::Return(answer))) => {
                *now_ms = run.clock.call0()?.extract()?;
                let usual = (answer.is_none() || answer.is(&run.success))
                    && context.getattr(auto_commit)?.is_truthy()?
                    && *now_ms - *begin_ms < run.long_ms;
                (!usual).then_some((context, answer, None, false))
            }
        };
        if left.is_some() {
            return Ok(());
        }
        *handled = end;
        *calls += 1;
        *spent_ms += *now_ms - *begin_ms;
        if *now_ms > run.until_ms {
            break;
        }
        let mut ends = false;
        for (of, name) in &run.ends {
            ends = ends || of.getattr(name)?.is_truthy()?;
        }
        if ends {
            break;
        }
    }
    Ok(())
}
