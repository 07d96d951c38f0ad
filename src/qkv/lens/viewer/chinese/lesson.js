// Texts of the lesson in Chinese, by their English.

import { LESSON_QUESTIONS } from "./lesson_questions.js";

const STEPS = {
  "Words become vectors": "词变成向量",
  "Queries, keys and values": "查询、键和值",
  "Scores become weights": "分数变成权重",
  "The weighted sum": "加权求和",
  "Layer after layer": "一层又一层",
  "The translation": "写出译文",
  "The next word": "下一个词",
  "The hidden word": "被遮住的词",

  "The sentence as the model reads it": "模型眼中的句子",
  "The model cannot read letters. A tokenizer cuts the sentence into tokens: words, or pieces of rare words.":
    "模型不认识字母和汉字。分词器先把句子切成词元：常见的词是一个词元，少见的词会被切成几块。",
  "The vector of “{token}”": "“{token}”的向量",
  "Each token of the vocabulary has a vector e that the model learned, here of {width} numbers. The picture shows the first {first} of “{token}”.":
    "词表里的每个词元都有一个学出来的向量 e，这里是 {width} 个数。图中是“{token}”的前 {first} 个数。",
  "The vector is multiplied by √{width}, so that it is as large as the layers expect.":
    "这个向量要乘以 √{width}，大小才适合后面的各层。",
  "Then a vector for the position is added: without it the model could not tell the order of the words.":
    "接着加上位置编码，也就是代表位置的向量。没有它，模型就分不清词的先后顺序。",

  "What the model has written so far": "模型写到这里",
  "The text so far": "目前的文字",
  "The text with its gap": "带空格的句子",
  "The model has begun to write. It has just read “{reads}” and asks the sentence what it needs for its next word.":
    "模型已经动笔了。它刚读到“{reads}”，现在要向原句打听：写下一个词需要知道什么？",
  "“{reads}” is the last token so far. It asks the tokens before it what they know about the next word.":
    "“{reads}”是目前的最后一个词元。它向前面的词元打听：下一个词会是什么？",
  "The token “{reads}” stands for a hidden word. It asks the other tokens what the word could be.":
    "词元“{reads}”的位置上藏着一个词。它向其他词元打听：这个词可能是什么？",
  "A learned matrix turns its vector into a query q: what it looks for. Two more matrices turn the vector of each token into a key k, by which it is found, and a value v, which it hands over.":
    "一个学出来的矩阵把它的向量变成查询 q，表示“我在找什么”。另外两个矩阵把每个词元的向量变成键 k 和值 v：键让别人找得到它，值是它交出来的内容。",
  "Its state gives the query q: what it looks for. The encoder's vector of each token is its key k, by which it is found, and its value v, which it hands over.":
    "它的状态给出查询 q，表示“我在找什么”。编码器为每个词元算出的向量既用来做键 k，让别人找得到它，也用来做值 v，是它交出来的内容。",
  "You see one head of {heads} in layer {layer} of {layers}; every head has matrices of its own.":
    "这里看的是第 {layer} 层（共 {layers} 层）中的一个头，这一层共有 {heads} 个头，每个头都有自己的矩阵。",
  "Query, keys and values: the first {first} numbers of each": "查询、键和值：各看前 {first} 个数",

  "From scores to weights": "从分数到权重",
  "The query is multiplied with each key, number by number, and the products are added: the score. A large score means that the two fit.":
    "查询和每个键逐个数相乘，再把乘积加起来，就是分数，也叫点积。分数大，说明两者合得来。",
  "Query and key are added and squashed by tanh; a learned vector weighs the result. That is the score of a token.":
    "查询和键相加，经过 tanh 压缩，再由一个学出来的向量加权，得到词元的分数。",
  "Sums of many numbers are large. Dividing by √d, here {root}, keeps the softmax from choosing one word alone.":
    "许多数加在一起，结果往往很大。除以 √d（这里是 {root}），softmax 就不会只盯住一个词。",
  "A number b for the distance is added: here the order of the words enters.":
    "再加上一个由距离决定的数 b：词的顺序就是在这里进入模型的。",
  "The mask hides tokens that this one may not see: their score becomes −∞, and their weight 0.":
    "掩码遮住不许看的词元：它们的分数变成 −∞，权重就是 0。",
  "A mask could hide tokens; here it hides none.": "掩码可以遮住一些词元，不过这里一个也没有遮。",
  "The softmax takes e to the power of each score and divides by the sum: weights that add up to 1.":
    "softmax 先算 e 的“分数”次方，再除以总和，得到加起来等于 1 的权重。",
  "and {count} more tokens with smaller weights": "还有 {count} 个权重更小的词元",

  "Values, each times its weight, and their sum z": "每个值乘以自己的权重，加起来得到 z",
  "Each value is multiplied by its weight, and all are added: z is a mixture, most of it from “{token}”.":
    "每个值乘以自己的权重，再全部相加。得到的 z 是一种混合，其中最多的来自“{token}”。",
  "The results of the heads": "各个头的结果",
  "All heads do this at the same time, each with its own matrices, and each looks for something else. Their results are put side by side.":
    "所有的头同时在做这件事。每个头有自己的矩阵，找的东西各不相同；最后把它们的结果并排接起来。",
  "What came in, what is added, and the sum": "进来的、加上的，以及它们的和",
  "A matrix mixes the results into one vector o, which is added to the vector x that came in (the residual connection): nothing is lost.":
    "一个矩阵把这些结果混合成向量 o，再加到进来的向量 x 上，这就是残差连接：原来的信息一点也不丢。",
  "A norm then brings all numbers to the same size: mean 0 and deviation 1, times learned scales.":
    "然后是层归一化：让这些数的平均值为 0、标准差为 1，再乘以学出来的系数。",
  "State and z are joined": "状态和 z 合在一起",
  "A matrix and tanh turn the state and z into one vector, from which the next word will be chosen.":
    "一个矩阵加上 tanh，把状态和 z 变成一个向量，下一个词就由它来选。",
  "What came in, and what goes on": "进来的和传下去的",
  "A matrix brings z to the width of the layer, where it is added to what came in (the residual connection).":
    "一个矩阵把 z 变成这一层的宽度，再加到进来的向量上，这就是残差连接。",

  "{shown} of the {count} units": "{count} 个单元中的 {shown} 个",
  "Then each token is worked on by itself: a feed-forward network with {count} units. Each unit looks for one pattern in the vector; those that find theirs are above 0, and what they know is added to the vector.":
    "接下来每个词元单独加工：前馈网络有 {count} 个单元，每个单元在向量里寻找一种特征。找到了的单元大于 0，它们知道的东西会加到向量里。",
  "{count} units as bars, above 0 upwards": "{count} 个单元画成的柱子，大于 0 的向上",
  "What the model would say after each layer": "如果在某一层停下，模型会说什么",
  "The next layer does the same again: heads, residual, feed-forward network. The picture shows what the model would say if it had to stop after a layer. The bars follow the token that it says in the end.":
    "下一层把同样的事再做一遍：多个头、残差连接、前馈网络。图中是模型如果必须在某一层停下会说的词，条形表示它最终说出的那个词元的概率。",
  "after layer {layer}": "第 {layer} 层之后",
  "the bars: “{answer}”": "条形：“{answer}”",
  "The state of the top layer": "最上面一层的状态",
  "This model has no further layers between the attention and the output: its layers are recurrent and have read the text before.":
    "这个模型在注意力和输出之间没有别的层：它的层是循环的，之前已经把文字读过了。",

  "The most probable tokens": "概率最大的词元",
  "The last vector is multiplied with a vector of each token of the vocabulary: a number for each, its logit. A softmax turns the logits into probabilities.":
    "最后的向量和词表里每个词元的向量相乘，每个词元得到一个数，叫做 logit。softmax 再把 logit 变成概率。",
  "weight": "权重",
  "score": "分数",
  "logit": "logit",
  "probability": "概率",
  "The search, step by step": "一步一步地搜索",
  "The search keeps the best {beam} beginnings side by side and goes on with each of them. In the end the one with the best score wins.":
    "束搜索同时保留最好的 {beam} 个开头，每个都接着往下写。最后分数最高的那一个胜出。",
  "The token is added to the text, the model reads it, and everything begins again.":
    "把这个词元接到文字后面，模型再读一遍，一切从头开始。",
  "The search, covered until the first question is answered": "搜索过程，回答第一题后显示",
  "The way of the output: {way}": "输出走过的路：{way}",
  "In the sentence that was given, “{word}” stood in the place of [MASK].": "在原来的句子里，[MASK] 的位置上是“{word}”。",
  "(after the first question)": "（回答第一题后揭晓）",
};

const PAGE = {
  "How a model translates": "模型怎样翻译",
  "How a model writes": "模型怎样写作",
  "How a model fills a gap": "模型怎样填空",
  "Model {run} ({model}), {date}. All numbers are the model's own.": "模型 {run}（{model}），{date}。所有的数都是模型自己算出来的。",
  "Points: {points} of {all}": "得分：{points} / {all}",
  "Only you see them.": "只有你自己看得到。",
  "You have walked the whole way of the model: {points} of {all} points.": "你已经走完了模型的整条路：得分 {points} / {all}。",
  "Settings": "设置",
  "Projector": "投影",
  "Print as a worksheet": "打印成练习纸",
  "Sentence": "句子",
  "Steps": "步骤",
  "← Back": "← 上一步",
  "Next step →": "下一步 →",
  "Keys: ← and → or 1 to {steps} for the steps, Tab and Enter for the questions.":
    "键盘：← 和 → 或 1 到 {steps} 切换步骤，Tab 和 Enter 答题。",
  "Tokens": "词元",
  "… of {width}": "… 共 {width} 个",
  "Name": "姓名",
  "Answers": "答案",
};

export const LESSON = { ...STEPS, ...PAGE, ...LESSON_QUESTIONS };
