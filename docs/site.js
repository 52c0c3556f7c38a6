// Earlier, one page had the whole Python reference: its anchors lead to the pages that it lists.
if (location.pathname.endsWith("/reference/python/") && location.hash.startsWith("#exaul.")) {
  for (const item of document.querySelectorAll("article li")) {
    const names = [...item.querySelectorAll("code")].map((code) => `#${code.textContent}.`);
    if (names.some((name) => `${location.hash}.`.startsWith(name))) {
      location.replace(item.querySelector("a").href + location.hash);
    }
  }
}
