// Texts of the views of word vectors in Chinese, by their English.

export const WORDS = {
  "A map of {count} words. Arrow keys move it, plus and minus zoom, 0 shows all; search to choose a word.":
    "{count} 个词的词向量图。用方向键移动，用加号和减号缩放，按 0 显示全图；用搜索框选词。",
  "A map of {count} words": "{count} 个词的词向量图",
  "Words found": "找到的词",
  "Search a word": "搜索一个词",
  "No word of this map has these letters.": "图中没有含这些字母的词。",
  "Projection": "投影方法",
  "Zoom in": "放大",
  "Zoom out": "缩小",
  "Show all": "显示全图",
  "Words in similar contexts have similar vectors. A plane shows only part of their distances: neighbours, with their cosines, are those of all dimensions.":
    "上下文相似的词，词向量也相似。平面图只能保留一部分距离信息；列出的近邻和余弦相似度是按全部维度计算的。",
  " (occurs {count} times)": "（出现 {count} 次）",
  "Nearest to “{word}”": "与“{word}”最近的词",
  "{first} is to {second} as {third} is to {best}": "{first} 之于 {second}，正如 {third} 之于 {best}",
  "The plane has the true distances of the three words. It holds {share} % of all the distances from “{first}”.":
    "三个词在平面上的距离与原空间一致。各词到“{first}”的距离平方中，有 {share}% 落在这个平面内。",
  "Answers, best first": "答案，从最佳开始",
  "The difference of two vectors, as an arrow: the answer is the word nearest to the end of the second arrow.":
    "箭头表示两个词向量之差；离第二个箭头终点最近的词就是答案。",
  "Share of the training": "训练进度",
  "{share} of the training": "训练进度 {share}",
  "The words with the most similar vectors at each snapshot. Those that are there at the end are in colour.":
    "每个快照中词向量最相似的词。训练结束时仍在列表中的词以彩色显示。",
  "Neighbours through training": "训练过程中的近邻",
};
