//! The format's reference implementation agrees on valid files.

use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use k3_formats::safetensors::ShardHeader;
use k3_formats::safetensors::writer::{HeaderBuilder, HeaderPadding};
use k3_formats::{Dtype, MemoryFile};

/// Name, type, shape and bytes.
type Tensor = (String, String, Vec<u64>, Vec<u8>);

/// Every tensor as the reference reads it.
fn reference(file: &[u8]) -> Option<Vec<Tensor>> {
    let tensors = SafeTensors::deserialize(file).ok()?;
    let mut list: Vec<_> = tensors
        .iter()
        .map(|(name, view)| {
            let shape = view.shape().iter().map(|&size| size as u64).collect();
            (
                name.to_owned(),
                view.dtype().to_string(),
                shape,
                view.data().to_vec(),
            )
        })
        .collect();
    list.sort();
    Some(list)
}

fn ours(file: &[u8]) -> Option<Vec<Tensor>> {
    let header = ShardHeader::read(&MemoryFile::new("f", file.to_vec())).ok()?;
    let mut list: Vec<_> = header
        .tensors
        .iter()
        .map(|(name, tensor)| {
            let start = usize::try_from(tensor.offset).unwrap();
            let end = start + usize::try_from(tensor.bytes).unwrap();
            let shape = tensor.shape.as_slice().to_vec();
            (
                name.clone(),
                tensor.dtype.to_string(),
                shape,
                file[start..end].to_vec(),
            )
        })
        .collect();
    list.sort();
    Some(list)
}

#[test]
fn what_the_reference_writes_is_read() {
    let data: Vec<u8> = (0..48).collect();
    let views = [
        (
            "b",
            TensorView::new(safetensors::Dtype::BF16, vec![3, 4], &data[..24]).unwrap(),
        ),
        (
            "a",
            TensorView::new(safetensors::Dtype::U8, vec![7], &data[24..31]).unwrap(),
        ),
        (
            "s",
            TensorView::new(safetensors::Dtype::F64, vec![], &data[31..39]).unwrap(),
        ),
        (
            "e",
            TensorView::new(safetensors::Dtype::F32, vec![0, 2], &data[..0]).unwrap(),
        ),
    ];
    let metadata = Some([("format".to_owned(), "pt".to_owned())].into());
    let file = safetensors::serialize(views, metadata).unwrap();
    assert_eq!(ours(&file).unwrap(), reference(&file).unwrap());
    assert_eq!(ours(&file).unwrap().len(), 4);
}

#[test]
fn every_element_type_has_the_references_name_and_size() {
    for dtype in Dtype::ALL {
        let mut header = HeaderBuilder::new();
        header.tensor("t", dtype, &[3]);
        let data = vec![1; usize::try_from(header.data_bytes()).unwrap()];
        let file = header.build_file(HeaderPadding::Spaces(0), &data);
        assert!(ours(&file).is_some(), "{dtype}");
        assert_eq!(ours(&file), reference(&file), "{dtype}");
    }
}

fn tensors() -> impl Strategy<Value = Vec<(usize, Vec<u64>)>> {
    let shape = prop::collection::vec(0_u64..5, 0..5);
    prop::collection::vec((0..Dtype::ALL.len(), shape), 0..8)
}

proptest! {
    #[test]
    fn the_reference_reads_what_we_write(list in tensors(), spaces in 0_usize..20) {
        let mut header = HeaderBuilder::new();
        for (number, (dtype, shape)) in list.iter().enumerate() {
            header.tensor(format!("t.{number}"), Dtype::ALL[*dtype], shape);
        }
        let data: Vec<u8> = (0..=255).cycle()
            .take(usize::try_from(header.data_bytes()).unwrap())
            .collect();
        let file = header.build_file(HeaderPadding::Spaces(spaces), &data);
        prop_assert_eq!(ours(&file).unwrap(), reference(&file).unwrap());
    }

    /// Whatever we accept, the reference accepts and understands the same way.
    #[test]
    fn nothing_is_accepted_that_the_reference_refuses(
        list in tensors(),
        edits in prop::collection::vec((0_usize..600, any::<u8>()), 0..3),
    ) {
        let mut header = HeaderBuilder::new();
        for (number, (dtype, shape)) in list.iter().enumerate() {
            header.tensor(format!("t.{number}"), Dtype::ALL[*dtype], shape);
        }
        let data = vec![0; usize::try_from(header.data_bytes()).unwrap()];
        let mut file = header.build_file(HeaderPadding::Spaces(1), &data);
        for (place, byte) in edits {
            let place = place % file.len();
            file[place] = byte;
        }
        if let Some(read) = ours(&file) {
            prop_assert_eq!(Some(read), reference(&file));
        }
    }
}
