"""The optional Lucene backend agrees with the native engine."""

import pytest

from agentrl.envs.webshop import bm25, generate, products, search


def test_a_missing_pyserini_is_one_sentence(monkeypatch):
    monkeypatch.setattr(search, "have_pyserini", lambda: False)
    with pytest.raises(ValueError, match="search=pyserini needs the package pyserini and Java"):
        search.pyserini_ranker("nowhere", generate.catalogue(5, 0))


def test_lucene_and_the_native_engine_rank_alike(tmp_path):
    lucene = pytest.importorskip("pyserini.index.lucene", reason="pyserini or Java is not installed")
    catalogue = generate.catalogue(300, 0)
    indexer = lucene.LuceneIndexer(str(tmp_path / "index"))
    for product in catalogue.products:
        indexer.add_doc_dict({"id": product.asin, "contents": products.indexed_text(product)})
    indexer.close()
    rank = search.pyserini_ranker(str(tmp_path / "index"), catalogue)
    for number in range(0, 300, 7):
        query = catalogue.products[number].wishes[0].instruction
        native = [hit.document for hit in bm25.search(catalogue.postings, query, search.RETURNED)]
        assert rank(query).tolist() == native
