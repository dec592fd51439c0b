//! Functions of `lockstep.protocol`, pure, and one of a consumer. Each has a twin in Python, which is the reference.
use pyo3::prelude::*;

mod calls;
mod frames;
mod json;
mod messages;
mod sends;
mod stored;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // As in protocol/native.py: it rises when a function comes, goes or changes.
    module.add("INTERFACE", 3)?;
    module.add_class::<messages::StoredMessage>()?;
    module.add_function(wrap_pyfunction!(calls::call_each, module)?)?;
    module.add_function(wrap_pyfunction!(messages::decode_into, module)?)?;
    module.add_function(wrap_pyfunction!(sends::plain_sends, module)?)?;
    module.add_function(wrap_pyfunction!(frames::plain_frame, module)?)?;
    Ok(())
}
