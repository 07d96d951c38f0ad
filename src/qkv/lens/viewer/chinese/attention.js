// Texts of the views of attention, and of the frame of all pictures, in Chinese, by their English.

export const ATTENTION = {
  // The frame of a page and of a picture
  "Inside the model": "模型内部",
  "Inside the model: attention": "模型内部：注意力",
  "Model: {model}": "模型：{model}",
  "translator": "翻译模型",
  "encoder": "编码器",
  "text generator": "文本生成模型",
  "trained on {data}": "训练数据：{data}",
  "page made on {date} by qkv": "本页由 qkv 于 {date} 生成",
  "Picture: {title}": "图：{title}",
  "Full screen": "全屏",
  "Leave full screen": "退出全屏",
  "Download as a picture": "下载为图片",
  "Download as a drawing that scales": "下载为可缩放的矢量图",

  // Tabs and choices
  "What to see": "查看内容",
  "Word by word": "逐词对应",
  "Attention": "注意力",
  "Head patterns": "头的模式",
  "What mattered": "哪些词起了作用",
  "Positions and embeddings": "位置编码与词嵌入",
  "Which attention": "哪一种注意力",
  "How to see it": "查看方式",
  "All heads": "所有的头",
  "Average": "平均",
  "Words or pieces of words": "按词或按词元",
  "Words": "词",
  "Pieces": "词元",
  "Reading the source": "阅读原文",
  "Looking back at its own words": "回看已写出的译文",
  "From translation to source": "从译文到原文",
  "Through all layers": "贯穿各层",
  "Looking back": "回看前文",
  "Within the text": "文本内部",
  "was translated as": "译为",
  "the model says": "模型的回答是",
  "the model went on with": "模型续写为",

  // Word by word
  "Which words of the source the model attended to while it wrote each word. Point at a word: the thicker a line, the more attention.":
    "模型写出每个词时注意了原文中的哪些词。把鼠标移到一个词上：线越粗，注意力越多。",
  "In each pair of lines the source is above and the translation below. Lines are drawn from a share of {share} on; a line to a word in another pair of lines appears when one of its words is chosen.":
    "每两行中，上面是原文，下面是译文。注意力占比达到 {share} 才画线；连到其他行的线，在选中其中一个词时显示。",
  "Source: choose a word": "原文：请选择一个词",
  "Translation: choose a word": "译文：请选择一个词",
  "no word in particular": "没有特别注意哪个词",
  "{word} attended to: {words}": "{word} 注意了：{words}",
  "{word} was attended to by: {words}": "注意 {word} 的词：{words}",

  // Heads and weights
  "Each square is one attention head: a row is the word that attends, a column the word that it attends to, and more colour is more attention. Open a square to read it.":
    "每个方块是一个注意力头：行是发出注意的词，列是被注意的词，颜色越深注意力越多。点开方块可以细看。",
  "In each square the strongest weight has the full colour. The word below a square is the pattern that the head follows.":
    "每个方块中最大的权重颜色最深。方块下面的文字是这个头所遵循的模式。",
  "Heads by layer": "各层的头",
  "Layer {layer}": "第 {layer} 层",
  "Layer {layer}, head {head}": "第 {layer} 层，第 {head} 个头",
  "← Previous head": "← 上一个头",
  "Next head →": "下一个头 →",
  "Close": "关闭",
  "Attention through all layers: the share of each input word in each position after the last layer.":
    "贯穿各层的注意力：最后一层之后，每个位置中各个输入词所占的份额。",
  "This model has one attention head in one layer.": "这个模型只有一层，一个注意力头。",
  "All heads and layers of this part averaged into one.": "这一部分所有层、所有头的平均。",
  "{word} attends to: {words}": "{word} 注意：{words}",
  "nothing in particular": "没有特别注意什么",
  "All weights": "全部权重",
  "from ↓ to →": "从 ↓ 到 →",
  "Rows are the words that attend, columns the words that they attend to, in the order of the text.":
    "行是发出注意的词，列是被注意的词，均按文本中的顺序排列。",
  "Attending words: choose one": "发出注意的词：请选择一个",
  "Attended words": "被注意的词",
  "While writing": "写出",
  "Having read": "读到",
  "Attending": "注意",
  "it attended to": "时，它注意了",
  "Point at a word or a cell, or use the arrow keys.": "把鼠标移到词或格子上，或使用方向键。",
  "where a text begins": "文本的开头",
  "where a text begins; often stands for all of it": "文本的开头；常常代表整个文本",
  "where a text ends": "文本的结尾",
  "where a text, or a part of it, ends": "文本或其一部分的结尾",
  "a hidden word, to be predicted": "被遮住、要预测的词",
  "a text that the vocabulary has no token for": "词表中没有对应词元的文字",

  // Head patterns
  "Some heads follow one simple pattern. These were found in this text; the number is the share of the head's attention that follows it.":
    "有些头遵循一种简单的模式。下面是在这段文本中找到的；数字是这个头的注意力中符合该模式的份额。",
  "The last column has the change of the score ({figure}, {score} with all heads, on {texts} texts) without the head: below 0 the model needs it.":
    "最后一列是去掉这个头之后分数的变化（{figure}，保留所有头时为 {score}，在 {texts} 段文本上测得）：小于 0 说明模型需要它。",
  "Where a head looks does not say whether the model needs it. The command “qkv heads RUN DEV” measures what the model loses without each head; then it is shown here.":
    "一个头看向哪里，并不能说明模型是否需要它。命令“qkv heads RUN DEV”会测量去掉每个头之后模型损失多少，结果会显示在这里。",
  "Without this head: {figure} {after} instead of {before} ({change}), measured on {texts} texts.":
    "去掉这个头：{figure}由 {before} 变为 {after}（{change}），在 {texts} 段文本上测得。",
  "log-probability of a token": "每个词元的对数概率",
  "No head follows a known pattern. A longer text shows more.": "没有头遵循已知的模式。换一段长一些的文本会看到更多。",
  "and {count} more": "另有 {count} 个",
  "The token before": "前一个词元",
  "The token after": "后一个词元",
  "Itself": "自身",
  "The first token": "第一个词元",
  "The end of the text": "文本的结尾",
  "In order": "依次对应",
  "The same word": "同一个词",
  "Repetition": "重复",
  "Punctuation": "标点",
  "Induction": "归纳",
  "Everywhere": "均匀分布",
  "previous": "前一个",
  "next": "后一个",
  "self": "自身",
  "first": "第一个",
  "separator": "结尾",
  "punctuation": "标点",
  "same word": "同一个词",
  "repeated": "重复",
  "induction": "归纳",
  "everywhere": "均匀",
  "in order": "依次",
  "Attends to the token just before.": "注意紧挨在前面的词元。",
  "Attends to the token just after.": "注意紧跟在后面的词元。",
  "Attends to the token itself.": "注意词元自身。",
  "Attends to the first token, where heads often rest when they have nothing to look for.":
    "注意第一个词元；头没有什么要找时，常常停在那里。",
  "Attends to the mark that ends the text, where heads often rest when they have nothing to look for.":
    "注意文本结尾的标记；头没有什么要找时，常常停在那里。",
  "Attends to full stops, commas and other signs.": "注意句号、逗号等标点符号。",
  "Attends to the other pieces of the same word.": "注意同一个词的其他词元。",
  "Attends to other occurrences of the same token.": "注意同一词元在别处的出现。",
  "Attends to the token that followed the same token earlier: the text may repeat itself.":
    "注意前文中同一词元之后的那个词元：文本可能会重复。",
  "Attends to all tokens about alike.": "对所有词元的注意大致相同。",
  "Goes through the source in step with the target, from left to right.": "随着译文，从左到右依次看过原文。",

  // What mattered
  "How much each word contributed to the output. Blue words support it, orange ones oppose it.":
    "每个词对输出的贡献。蓝色的词支持它，橙色的词反对它。",
  "Method: gradient × input. How fast the score changes when the embedding of a word is scaled.":
    "方法：梯度 × 输入，即缩放一个词的嵌入时分数变化得多快。",
  "Method: integrated gradients. The change of the score on the way from an empty text to this one, shared among the words.":
    "方法：积分梯度，即从空文本到这段文本的过程中分数的变化，分摊给各个词。",
  "Method: occlusion. How much the score falls when a word is left out or replaced.":
    "方法：遮挡，即去掉或替换一个词时分数下降多少。",
  "Each word was replaced by {token}.": "每个词都被换成 {token}。",
  "Completeness: the contributions sum to {sum}; the score differs by {difference} from that of an empty text ({steps} steps).":
    "完备性：贡献之和为 {sum}；分数与空文本的分数相差 {difference}（{steps} 步）。",
  "They agree, as they must.": "两者相符，理应如此。",
  "They do not agree: read these contributions with care.": "两者不符：解读这些贡献时请谨慎。",
  "Bars: the {count} largest contributions; the longest bar is the largest of this text.":
    "条形：最大的 {count} 个贡献；最长的一条是这段文本中最大的贡献。",
  "Words of the source": "原文的词",
  "Words that were written: choose one": "写出的词：请选择一个",
  "For writing": "写出",
  "these contributed": "这些词的贡献",
  "all of it": "全部",
  "nothing": "无",
  "Explained: {output}.": "所解释的输出：{output}。",
  "For {output}: {above}. Against it: {below}.": "支持{output}：{above}。反对：{below}。",
  "the translation": "译文",
  "the next token, {token}": "下一个词元 {token}",
  "“{word}” instead of “{other}”": "“{word}”而不是“{other}”",
  "the prediction “{word}” for the first [MASK]": "第一个 [MASK] 处的预测“{word}”",

  // Positions and embeddings
  "Position encodings": "位置编码",
  "Attention alone does not know the order of words. So an encoding of its position is added to each word: one row for each position.":
    "注意力本身并不知道词的顺序，所以每个词都要加上它的位置编码：每个位置一行。",
  "{rows} positions downwards, {columns} dimensions across; blue is above 0, orange below.":
    "纵向是 {rows} 个位置，横向是 {columns} 个维度；蓝色大于 0，橙色小于 0。",
  "Embeddings": "词嵌入",
  "Every token has a vector, its embedding. Here the vectors are projected to a plane: similar tokens lie close together.":
    "每个词元都有一个向量，即它的嵌入。这里把这些向量投影到平面上：相近的词元靠在一起。",
  "A map of {count} tokens": "{count} 个词元的分布图",
  "Blue circles: tokens of the source. Orange squares: tokens of the translation.": "蓝色圆点：原文的词元。橙色方块：译文的词元。",
  "Each point is a token.": "每个点是一个词元。",
  "{count} points have no room for a label; point at one to read it.": "有 {count} 个点放不下文字；把鼠标移到点上即可看到。",

  // Titles of pages
  "Inside the model: the arithmetic of a head": "模型内部：一个头的计算",
  "Inside the model: before and after a change": "模型内部：改动前后",
  "Inside the model: what restores the answer": "模型内部：哪里能恢复答案",
  "Inside the model: layer by layer": "模型内部：逐层预测",
  "Inside the model: while it writes": "模型内部：写作过程",
  "Inside the model: through training": "模型内部：训练过程",
  "Inside the model: without each head": "模型内部：去掉每个头",
  "Inside the model: what mattered": "模型内部：哪些词起了作用",
  "Word vectors": "词向量",
};
