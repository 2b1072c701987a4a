async () => {
  const { MarkdownStream, renderMarkdown } = await import("/page/markdown.js");
  const texts = [
    "# Title\n\nA *b* **c** `d` ~~e~~ [l](https://a.example/x_(y)) <https://b.example>\nmore\n\n- one\n- two\n  - three\n\n  text\n- [x] done\n\n1. a\n2. b\n\n\n3. c\n\n> quote\n> - in\n\n---\n",
    "| a | b |\n|---|:-:|\n| 1 | `x\\|y` |\n| 2 |\n\ntext | with | bars\n|- no\nafter\n\n```py\ndef f():\n  return '```'\n\n\n```\nend\n~~~\nopen to the end\n",
    "para\n# head\ntext\n* item\n\n* item two\n\ntext\n```\ncode\n``\n````\n```\n_a_b_ __c__ ***d*** **e *f* g** \\*no\\* &amp; &lt; &#33;\nhard  \nbreak\\\nhere\n",
    "- a\n\n\n- b\n\n    indented\n\nend\n\n1) x\n2) y\n- z\nlazy\n",
    "**open\n\n`tick\n\n[link](\n\n![pic](https://a.example/p.png) https://c.example/a,b. (https://d.example)\n",
    "*".repeat(300) + "a" + "_".repeat(300) + "[".repeat(300) + "`".repeat(99),
  ];
  let seed = 7;
  const random = () => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed / 2147483648; };
  const differing = [];
  const shapeOf = (node) => new XMLSerializer().serializeToString(node);
  for (const text of texts) {
    const whole = document.createElement("div");
    renderMarkdown(whole, text);
    for (let round = 0; round < 60; round += 1) {
      const parent = document.createElement("div");
      const reader = new MarkdownStream(parent);
      for (let at = 0; at < text.length; ) {
        const size = 1 + Math.floor(random() * (round % 3 === 0 ? 2 : 25));
        reader.write(text.slice(at, at + size));
        at += size;
      }
      reader.end();
      if (shapeOf(parent) !== shapeOf(whole)) {
        differing.push([text.slice(0, 40), shapeOf(whole).slice(0, 600), shapeOf(parent).slice(0, 600)]);
        break;
      }
    }
  }
  return differing;
}
